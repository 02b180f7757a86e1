#include "chunk_size.hpp"

#include <gtest/gtest.h>

namespace crossfade {
namespace {

using std::chrono::milliseconds;

TEST(ChunkSizeTest, GrowsByHalfTowardsTheTargetAndNoFaster) {
  ChunkSize size;
  size.succeeded(1000, milliseconds(10), milliseconds(100));
  EXPECT_EQ(size.rows(), 1500);
  size.succeeded(1500, milliseconds(80), milliseconds(100));
  EXPECT_EQ(size.rows(), 1875);
}

TEST(ChunkSizeTest, ShrinksAtOnceToWhatTheTargetAllows) {
  ChunkSize size;
  size.succeeded(1000, milliseconds(200), milliseconds(100));
  EXPECT_EQ(size.rows(), 500);
  size.succeeded(500, milliseconds(100'000), milliseconds(100));
  EXPECT_EQ(size.rows(), 125);
}

TEST(ChunkSizeTest, HalvesWhenAChunkIsUndoneDownToOneRowAndGrowsFromThere) {
  ChunkSize size;
  for (const int rows : {500, 250, 125, 62, 31, 15, 7, 3, 1, 1}) {
    size.failed();
    EXPECT_EQ(size.rows(), rows);
  }
  size.succeeded(1, milliseconds(1), milliseconds(100));
  EXPECT_EQ(size.rows(), 2);
}

TEST(ChunkSizeTest, AChunkThatABoundCutShortSaysNothing) {
  ChunkSize size;
  size.succeeded(10, milliseconds(1), milliseconds(100));
  EXPECT_EQ(size.rows(), 1000);
}

TEST(ChunkSizeTest, HasAGreatestSizeAndACap) {
  ChunkSize size;
  for (int i = 0; i < 100; ++i) size.succeeded(size.rows(), milliseconds(1), milliseconds(100));
  EXPECT_EQ(size.rows(), 50'000);
  size.cap(0);
  EXPECT_EQ(size.rows(), 50'000) << "no cap";
  size.cap(40);
  EXPECT_EQ(size.rows(), 40);
}

}  // namespace
}  // namespace crossfade
