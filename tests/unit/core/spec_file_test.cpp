#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "crossfade/core/error.hpp"
#include "crossfade/core/spec.hpp"

namespace crossfade {
namespace {

class SpecFileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "crossfade_spec_" + std::to_string(getpid()) + ".toml";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

Error refused(const std::string& path) {
  try {
    read_spec_file(path);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << path << " was read";
  return {ErrorCode::internal_error, ""};
}

TEST_F(SpecFileTest, TheTextIsReadAsItIs) {
  const std::string text("a = 1\r\n\0größe", 15);
  std::ofstream(path_, std::ios::binary) << text;
  EXPECT_EQ(read_spec_file(path_), text);
}

TEST_F(SpecFileTest, AnEmptyFileIsEmptyText) {
  std::ofstream(path_).flush();
  EXPECT_EQ(read_spec_file(path_), "");
}

TEST_F(SpecFileTest, AMissingFileIsNamedWithTheReason) {
  const Error error = refused(path_);
  EXPECT_EQ(error.code(), ErrorCode::spec_unreadable);
  EXPECT_EQ(error.exit_status(), 2);
  EXPECT_NE(error.message().find(path_), std::string::npos);
  EXPECT_NE(error.message().find("No such file or directory"), std::string::npos);
}

TEST_F(SpecFileTest, AFolderIsNotASpec) {
  const Error error = refused("/");
  EXPECT_EQ(error.code(), ErrorCode::spec_unreadable);
  EXPECT_NE(error.message().find("Is a directory"), std::string::npos) << error.message();
}

TEST_F(SpecFileTest, AFileThatIsTooLargeIsRefused) {
  std::ofstream(path_) << std::string(65'537, '\n');
  EXPECT_EQ(refused(path_).code(), ErrorCode::spec_unreadable);
}

}  // namespace
}  // namespace crossfade
