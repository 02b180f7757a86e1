// What happens to each kind of object, for people: docs/dependents.md is this table.
#include "crossfade/shadow/dependents.hpp"

namespace crossfade {

const std::vector<DependentRule>& dependent_rules() {
  static const std::vector<DependentRule> rules{
      {"NOT NULL", "carried",
       "a CHECK is added NOT VALID and validated online; the switch sets NOT NULL without a scan. Where the "
       "expression "
       "may give NULL the check comes with the switch and is validated after it",
       "dual_write", "SHARE UPDATE EXCLUSIVE", ""},
      {"DEFAULT", "carried",
       "its value goes through the forward expression; what draws from a sequence stays as it is", "switched",
       "", "misfit_default"},
      {"COMMENT on the column", "carried", "set on the new column", "switched", "", ""},
      {"statistics target, options, storage, compression, deterministic collation", "carried",
       "set on the new column when it comes into being, where its type has them", "backfill", "", ""},
      {"nondeterministic collation, security label, FDW options", "refused",
       "equality, and what the label or wrapper means, would change", "", "", "dependent_not_carried"},
      {"privileges on the column", "carried",
       "granted on the new column by the same grantors; refused when this role "
       "cannot act as one of them",
       "switched", "", "dependent_not_carried"},
      {"index of any access method, partial, on expressions, INCLUDE, operator classes, collations",
       "carried",
       "a twin is built CONCURRENTLY by the same words over the new column and takes the name at the switch; "
       "refused "
       "when the new type cannot do what the words say, or when it computes with the column and the "
       "conversion does "
       "not keep values",
       "dual_write", "SHARE UPDATE EXCLUSIVE", "dependent_not_carried"},
      {"unique index, UNIQUE, PRIMARY KEY", "carried",
       "as any index; where two values are not proved to stay apart on the way there it is refused "
       "until that is accepted, and the dry run counts the rows; a constraint also gets a spare index "
       "on the old column, of which the way back makes it again at once; a primary key or replica "
       "identity only where the new column is proved NOT NULL before the switch",
       "dual_write", "SHARE UPDATE EXCLUSIVE", "twin_unique_may_reject"},
      {"index of the old column that could refuse what the new one takes", "carried",
       "where two values are not proved to stay apart on the way back, or the index computes with the "
       "column and not every value has a way back: dropped in the switch, and built again CONCURRENTLY "
       "before a way back, which is refused while old values collide",
       "switched", "SHARE UPDATE EXCLUSIVE, before a way back", ""},
      {"index, unique constraint or statistics object over several columns that move together", "carried",
       "one twin over the new columns of all, built and moved with the first of them in the table; what "
       "could "
       "refuse for one of them is dropped in the switch",
       "dual_write", "SHARE UPDATE EXCLUSIVE", "dependent_not_carried"},
      {"DEFERRABLE unique constraint", "refused", "its twin is checked at once until the switch", "", "",
       "dependent_not_carried"},
      {"index that is not valid, reads the whole row, has a statistics target, or depends on an extension",
       "refused", "the twin would be another index", "", "", "dependent_not_carried"},
      {"replica identity, CLUSTER", "carried", "named again when the twin has taken the name", "switched", "",
       ""},
      {"extended statistics", "carried",
       "a twin is made and takes the name; columns stand in the order of the table", "dual_write",
       "SHARE UPDATE EXCLUSIVE", "dependent_not_carried"},
      {"CHECK, also over several columns", "carried",
       "every row is tested before the switch; then added NOT VALID by the same words and validated online",
       "switched", "SHARE UPDATE EXCLUSIVE", "dependent_not_carried"},
      {"foreign key of the column", "carried",
       "where the conversion keeps values: added NOT VALID by the same words and validated online; the "
       "referenced "
       "table is locked with the table",
       "switched", "ACCESS EXCLUSIVE on the referenced table", "dependent_not_carried"},
      {"EXCLUDE", "refused", "it cannot be added without a scan under the lock", "", "",
       "dependent_not_carried"},
      {"serial sequence", "carried", "goes over to the new column, in its type, before the table is locked",
       "switched", "SHARE ROW EXCLUSIVE on the sequence", "dependent_not_carried"},
      {"identity", "carried",
       "where an integer becomes wider: dropped and made again where it stood, with its options, privileges "
       "and comment",
       "switched", "ACCESS EXCLUSIVE on the sequence", "dependent_not_carried"},
      {"generated column, partition key", "refused",
       "its expression cannot be changed without rewriting the table", "", "", "dependent_not_carried"},
      {"index of a partitioned table", "carried",
       "a twin is made ON ONLY the table, its parts are built CONCURRENTLY and attached; at the switch they "
       "trade names; refused when a part has options, a tablespace or a comment of its own, or when the "
       "switch would have to drop it because it could refuse what the new column takes",
       "dual_write", "ACCESS EXCLUSIVE on each part", "dependent_not_carried"},
      {"foreign key of a partitioned table, or that refers to the column from one", "carried",
       "before the switch each partition gets the same constraint over the other column, NOT VALID and then "
       "validated online; the switch adds it to the table, which takes those over and reads no row; refused "
       "where it refers to a partitioned table",
       "compare", "ACCESS EXCLUSIVE on each partition with the referenced table, in short attempts",
       "dependent_not_carried"},
      {"UNIQUE, PRIMARY KEY of a partitioned table", "carried",
       "an index over the new column is built CONCURRENTLY on each partition; the switch makes the "
       "partition's "
       "constraint of it, and the table's of theirs, without a build; the old column's go, and are built "
       "again "
       "before a way back; refused where a foreign key refers to it, or the index has options or a "
       "tablespace",
       "dual_write", "SHARE UPDATE EXCLUSIVE on each partition", "dependent_not_carried"},
      {"of a partitioned table: extended statistics, trigger with the column, publication", "refused",
       "not yet", "", "", "dependent_not_carried"},
      {"what a partition has of its own on the column", "refused",
       "the table's statements would leave it on the other side", "", "", "dependent_not_carried"},
      {"view, and the views on it", "carried",
       "dropped and made again by the same words, with owner, options, privileges, comments, defaults, rules "
       "and "
       "triggers; tried beforehand, with their defaults and rules, on a clone with the new type; refused "
       "when "
       "anything else hangs on it (also a rule that needs a view made after its own) or its owner is another "
       "role",
       "switched", "ACCESS EXCLUSIVE on the view, before the table's", "dependent_not_carried"},
      {"materialized view", "refused", "its rows would be made anew under the lock", "", "",
       "dependent_not_carried"},
      {"rule", "carried", "replaced by the same words, where the conversion keeps values", "switched",
       "ACCESS EXCLUSIVE on its relation", "dependent_not_carried"},
      {"policy, also of another table", "carried", "ALTER POLICY by the same words", "switched",
       "ACCESS EXCLUSIVE on its table", "dependent_not_carried"},
      {"trigger with the column in its list or WHEN", "carried", "dropped and made again by the same words",
       "switched", "", "dependent_not_carried"},
      {"other row triggers in PL/pgSQL", "carried",
       "made again when the type changes, so that open sessions forget the old type", "switched", "",
       "plpgsql_cached_types"},
      {"function with an SQL body", "carried", "replaced by the same words, which keeps owner and privileges",
       "switched", "", "dependent_not_carried"},
      {"function whose text names the column", "told",
       "in PL/pgSQL altered to what it is, where the role may, so that open sessions forget the old type",
       "switched", "", "plpgsql_cached_types"},
      {"publication with a column list or row filter", "carried",
       "the table is taken out and put in again by the same words; refused when the publication belongs to "
       "another role",
       "switched", "", "dependent_not_carried"},
      {"anything that reads the whole row (CHECK, index, WHEN, policy)", "refused",
       "the row has one more column until the drop", "", "", "dependent_not_carried"},
      {"foreign key of another column to the column", "carried",
       "with follow_foreign_keys its column moves too, in the same switch, or stays where it has the new "
       "type "
       "already, and the constraint is made again by the same words; refused without it, and where the "
       "conversion does not keep values",
       "switched", "ACCESS EXCLUSIVE on the referring table", "dependent_not_carried"},
  };
  return rules;
}

}  // namespace crossfade
