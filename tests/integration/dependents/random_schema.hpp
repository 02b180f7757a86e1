// A table with everything hung on one of its columns, by chance: for one seed always the same.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace crossfade::test {

// A choice that is the same on every platform.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <typename T>
  const T& of(const std::vector<T>& choices) {
    return choices[below(choices.size())];
  }

 private:
  std::mt19937_64 random_;
};

struct RandomObject {
  // The word of its kind in the ledger; "refused" for what is never carried, "beside" for what is nobody's
  // matter.
  std::string what;
  std::string name;    // as SQL shows it; part of a finding about it
  std::string create;  // {type} stands for the type of the column
  std::string drop;
  std::string writable_view = {};  // in SQL: shows id, the column, d and e
  bool of_column = false;          // a property of the column, and found by its name
  std::string other_name = {};     // of another object that comes with it
  std::string finding = {};        // when it is found by this id only, being the table's matter
};

struct RandomColumn {
  std::string old_type, new_type;
  bool number = true, key = false;
  std::string forward = {}, backward = {};  // {c}: the column
  // Of b, the old value as text: what the new one shows.
  std::string shown = "b";
  bool dirty = false;  // some rows have no new value
};

class RandomSchema {
 public:
  explicit RandomSchema(std::uint64_t seed);

  std::string table() const { return q(schema_) + "." + q(table_); }
  std::string column() const { return q(column_); }
  const std::string& column_name() const { return column_; }
  const RandomColumn& kind() const { return kind_; }
  bool not_null() const { return not_null_; }
  bool key_is_generated() const { return !key_default_.empty(); }
  std::string spec() const;
  // The table and its rows, with the column in `type`; run as the owner. `twin`: the same rows without
  // anything else, for the oracle.
  std::string make_table(const std::string& type) const;
  std::string make_twin() const;
  const std::vector<RandomObject>& objects() const { return objects_; }
  // A value of the column, as SQL, that both types hold and that no constraint of the generator refuses.
  std::string value(Chance& chance) const;

  static std::string q(const std::string& name);
  static std::string typed(std::string sql, const std::string& type);
  static std::string replaced(std::string text, std::string_view mark, const std::string& with);

 private:
  std::string new_name();
  void add(RandomObject object) { objects_.push_back(std::move(object)); }
  void choose_indexes();
  void choose_constraints();
  void choose_foreign_keys();
  void choose_views();
  void choose_triggers();
  void choose_code();
  void choose_policies_and_rules();
  void choose_properties();
  void choose_what_is_refused();
  void choose_key_parts();
  std::string function() const { return q(beside_) + "." + q(function_); }
  std::string row_condition(const std::string& prefix = "");
  std::string maybe_comment(const std::string& what);

  Chance chance_;
  std::vector<std::string> taken_;
  std::string schema_, beside_, table_, function_, column_, key_default_;
  RandomColumn kind_;
  bool not_null_ = false, follows_ = false;
  std::vector<RandomObject> objects_;
};

}  // namespace crossfade::test
