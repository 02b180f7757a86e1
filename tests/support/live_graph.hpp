// Users who follow each other: a join table whose key is made of two columns that refer to the same one,
// notes that refer to that key, and a tree. With an application that writes them, for LiveFamily, and does
// the same in a copy that nothing else touches: at every snapshot the two hold the same rows, whatever their
// types.
#pragma once

#include <string>
#include <vector>

namespace crossfade::test {

// In schema public, and the copy in schema twin. Everything that can stand on two columns stands on those
// that refer to public.users (id).
std::string graph_sql(int users);
std::vector<std::string> graph_turn(int id, int turn);
inline const std::vector<std::string> kGraphTables{"users", "follows", "notes", "tree"};

// How many rows of the graph are only in one of the two schemas; in the words of the new types.
std::string graph_difference_sql();
// For each column that a migration moves, while there are two of it: how many rows are not in step. A query
// of (what, how to count), the second to be run.
std::string graph_columns_sql();

}  // namespace crossfade::test
