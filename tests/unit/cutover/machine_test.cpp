#include "crossfade/cutover/machine.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossfade {

static bool operator==(const Outcome& a, const Outcome& b) {
  return a.verdict == b.verdict && a.phase == b.phase && a.status == b.status;
}

static std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  constexpr std::array<std::string_view, 3> words{"handled", "illegal", "refused"};
  return out << words.at(static_cast<std::size_t>(outcome.verdict)) << ' ' << to_text(outcome.phase) << ' '
             << to_text(outcome.status);
}

namespace {

constexpr std::array kAllEvents{Event::advance, Event::rollback, Event::pause, Event::resume,
                                Event::settle,  Event::fail,     Event::retry};

using Step = std::pair<Phase, Phase>;

// Answers every gate alike and remembers what it was asked and told.
class RecordingWorld : public MachineWorld {
 public:
  bool gate_open(Phase from, Phase to) override {
    asked.emplace_back(from, to);
    return is_open;
  }
  void cross(Phase from, Phase to) override { crossed.emplace_back(from, to); }

  bool is_open = true;
  std::vector<Step> asked, crossed;
};

std::string named(Phase phase, Status status, Event event) {
  std::string text{to_text(event)};
  return text.append(" in ").append(to_text(phase)).append(", ").append(to_text(status));
}

template <class Visit>
void for_each_combination(Visit visit) {
  for (const Phase phase : kAllPhases)
    for (const Status status : kAllStatuses)
      for (const Event event : kAllEvents) {
        SCOPED_TRACE(named(phase, status, event));
        visit(phase, status, event);
      }
}

// ---- the expectation, written down by hand ----

struct Entry {
  Phase phase;
  Status status;
};

std::optional<Entry> entered_by_advance(Phase phase) {
  switch (phase) {
    case Phase::planned: return Entry{Phase::dry_run, Status::running};
    case Phase::dry_run: return Entry{Phase::backfill, Status::running};
    case Phase::backfill: return Entry{Phase::dual_write, Status::running};
    case Phase::dual_write: return Entry{Phase::compare, Status::running};
    case Phase::compare: return Entry{Phase::switched, Status::running};
    case Phase::switched: return Entry{Phase::dropped, Status::settled};
    case Phase::dropped:
    case Phase::rolled_back: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Entry> entered_by_rollback(Phase phase) {
  switch (phase) {
    case Phase::planned: return Entry{Phase::rolled_back, Status::settled};
    case Phase::dry_run: return Entry{Phase::planned, Status::settled};
    case Phase::backfill: return Entry{Phase::dry_run, Status::running};
    case Phase::dual_write: return Entry{Phase::backfill, Status::running};
    case Phase::compare: return Entry{Phase::dual_write, Status::running};
    case Phase::switched: return Entry{Phase::compare, Status::running};
    case Phase::dropped:
    case Phase::rolled_back: return std::nullopt;
  }
  return std::nullopt;
}

// The phase and status that a phase change leads to; none when it is illegal here.
std::optional<Entry> crossing(Phase phase, Status status, Event event) {
  if (event == Event::rollback) return entered_by_rollback(phase);
  if (event == Event::advance && status == Status::settled) return entered_by_advance(phase);
  return std::nullopt;
}

// The status that an event leads to within an open phase; none when it is illegal here.
std::optional<Status> status_within(Status status, Event event) {
  const bool running = status == Status::running;
  switch (event) {
    case Event::pause:
      return running || status == Status::settled ? std::optional{Status::paused} : std::nullopt;
    case Event::resume: return status == Status::paused ? std::optional{Status::running} : std::nullopt;
    case Event::settle: return running ? std::optional{Status::settled} : std::nullopt;
    case Event::fail:
      return running || status == Status::settled ? std::optional{Status::failed} : std::nullopt;
    case Event::retry: return status == Status::failed ? std::optional{Status::running} : std::nullopt;
    case Event::advance:
    case Event::rollback: return std::nullopt;
  }
  return std::nullopt;
}

Outcome expected(Phase phase, Status status, Event event, bool gate_is_open) {
  if (const auto entry = crossing(phase, status, event)) {
    if (!gate_is_open) return {Verdict::refused, phase, status};
    return {Verdict::handled, entry->phase, entry->status};
  }
  const bool closed = phase == Phase::dropped || phase == Phase::rolled_back;
  const auto next = status_within(status, event);
  if (next && !closed) return {Verdict::handled, phase, *next};
  return {Verdict::illegal, phase, status};
}

// ---- fire() ----

TEST(MachineTest, EveryCombinationAnswersAsExpectedWithOpenGates) {
  for_each_combination([](Phase phase, Status status, Event event) {
    RecordingWorld world;
    EXPECT_EQ(fire(world, phase, status, event), expected(phase, status, event, true));
    std::vector<Step> steps;
    if (const auto entry = crossing(phase, status, event)) steps.emplace_back(phase, entry->phase);
    EXPECT_EQ(world.asked, steps);
    EXPECT_EQ(world.crossed, steps);
  });
}

TEST(MachineTest, EveryCombinationAnswersAsExpectedWithClosedGates) {
  for_each_combination([](Phase phase, Status status, Event event) {
    RecordingWorld world;
    world.is_open = false;
    EXPECT_EQ(fire(world, phase, status, event), expected(phase, status, event, false));
    EXPECT_TRUE(world.crossed.empty());
  });
}

TEST(MachineTest, AStatusThatForbidsAnswersBeforeTheGateIsAsked) {
  for (const Phase phase : kAllPhases)
    for (const Status status : {Status::running, Status::paused, Status::failed})
      for (const bool gate_is_open : {false, true}) {
        SCOPED_TRACE(named(phase, status, Event::advance));
        RecordingWorld world;
        world.is_open = gate_is_open;
        EXPECT_EQ(fire(world, phase, status, Event::advance).verdict, Verdict::illegal);
        EXPECT_TRUE(world.asked.empty());
      }
}

TEST(MachineTest, ClosedPhasesKnowNoLegalEvent) {
  for (const Phase phase : {Phase::dropped, Phase::rolled_back})
    for (const Status status : kAllStatuses)
      for (const Event event : kAllEvents) {
        SCOPED_TRACE(named(phase, status, event));
        RecordingWorld world;
        EXPECT_EQ(fire(world, phase, status, event), (Outcome{Verdict::illegal, phase, status}));
        EXPECT_TRUE(world.asked.empty());
      }
}

TEST(MachineTest, EveryPhaseIsRestoredAsItself) {
  for (const Phase phase : kAllPhases) {
    SCOPED_TRACE(to_text(phase));
    RecordingWorld world;
    const Outcome paused = fire(world, phase, Status::running, Event::pause);
    EXPECT_EQ(paused.phase, phase);
    EXPECT_EQ(paused.verdict, is_closed(phase) ? Verdict::illegal : Verdict::handled);
    fire(world, phase, Status::settled, Event::rollback);
    for (const Step& step : world.crossed) EXPECT_EQ(step.first, phase);
    EXPECT_EQ(world.crossed.empty(), is_closed(phase));
  }
}

TEST(MachineTest, WalksToDroppedWhenEachPhaseIsSettled) {
  RecordingWorld world;
  Outcome at{Verdict::handled, Phase::planned, Status::settled};
  std::vector<Phase> walked{at.phase};
  while (at.verdict == Verdict::handled && at.phase != Phase::dropped) {
    at = fire(world, at.phase, at.status, Event::advance);
    walked.push_back(at.phase);
    if (at.status == Status::running) at = fire(world, at.phase, at.status, Event::settle);
  }
  EXPECT_EQ(walked, (std::vector{Phase::planned, Phase::dry_run, Phase::backfill, Phase::dual_write,
                                 Phase::compare, Phase::switched, Phase::dropped}));
}

TEST(MachineTest, RollsBackFromSwitchedToTheBeginningWithoutSettling) {
  RecordingWorld world;
  Outcome at{Verdict::handled, Phase::switched, Status::failed};
  std::vector<Phase> walked{at.phase};
  while (at.verdict == Verdict::handled && at.phase != Phase::rolled_back) {
    at = fire(world, at.phase, at.status, Event::rollback);
    walked.push_back(at.phase);
  }
  EXPECT_EQ(walked, (std::vector{Phase::switched, Phase::compare, Phase::dual_write, Phase::backfill,
                                 Phase::dry_run, Phase::planned, Phase::rolled_back}));
}

// ---- exceptions ----

struct Torn : std::runtime_error {
  Torn() : std::runtime_error("torn") {}
};

class ThrowingWorld : public MachineWorld {
 public:
  enum class Where { gate, gate_no_exception_type, cross, cross_no_exception_type, nowhere };

  bool gate_open(Phase, Phase) override {
    if (where == Where::gate) throw Torn();
    if (where == Where::gate_no_exception_type) throw 42;
    return true;
  }
  void cross(Phase, Phase) override {
    if (where == Where::cross) throw Torn();
    if (where == Where::cross_no_exception_type) throw 42;
  }

  Where where = Where::nowhere;
};

TEST(MachineTest, AnExceptionOfTheWorldKeepsItsTypeAndALaterEventIsHandled) {
  using Where = ThrowingWorld::Where;
  ThrowingWorld world;
  for (const Event event : {Event::advance, Event::rollback}) {
    for (const Where where : {Where::gate, Where::cross}) {
      world.where = where;
      EXPECT_THROW(fire(world, Phase::compare, Status::settled, event), Torn);
    }
    for (const Where where : {Where::gate_no_exception_type, Where::cross_no_exception_type}) {
      world.where = where;
      EXPECT_THROW(fire(world, Phase::compare, Status::settled, event), int);
    }
    world.where = Where::nowhere;
    EXPECT_EQ(fire(world, Phase::compare, Status::settled, event),
              expected(Phase::compare, Status::settled, event, true));
  }
}

// ---- the table ----

TEST(MachineTest, EachRowIsWhatFireDoes) {
  for (const TransitionRow& row : transition_table()) {
    bool handled_somewhere = false;
    for (const Status status : kAllStatuses) {
      SCOPED_TRACE(named(row.from, status, row.event));
      RecordingWorld world;
      const Outcome outcome = fire(world, row.from, status, row.event);
      if (outcome.verdict != Verdict::handled) continue;
      handled_somewhere = true;
      EXPECT_EQ(outcome.phase, row.to.value_or(row.from));
      EXPECT_EQ(world.crossed.empty(), row.action != "cross");
      EXPECT_EQ(world.asked.empty(), row.guard.find("gate") == std::string_view::npos);
    }
    EXPECT_TRUE(handled_somewhere) << named(row.from, Status::running, row.event);
  }
}

TEST(MachineTest, OnlyPhaseChangesHaveATarget) {
  std::size_t phase_changes = 0;
  for (const TransitionRow& row : transition_table()) {
    const bool is_phase_change = row.event == Event::advance || row.event == Event::rollback;
    EXPECT_EQ(row.to.has_value(), is_phase_change) << named(row.from, Status::running, row.event);
    phase_changes += is_phase_change ? 1U : 0U;
  }
  EXPECT_EQ(phase_changes, 12U);
  EXPECT_EQ(transition_table().size() - phase_changes, 30U);
}

TEST(MachineTest, WhateverFireHandlesHasExactlyOneRow) {
  const auto table = transition_table();
  for_each_combination([&](Phase phase, Status status, Event event) {
    RecordingWorld world;
    if (fire(world, phase, status, event).verdict != Verdict::handled) return;
    const auto matches = [&](const TransitionRow& row) { return row.from == phase && row.event == event; };
    EXPECT_EQ(std::count_if(table.begin(), table.end(), matches), 1);
  });
}

TEST(MachineTest, TheGuardOfARowAdmitsTheStatusesItNames) {
  for (const TransitionRow& row : transition_table())
    for (const Status status : kAllStatuses) {
      SCOPED_TRACE(named(row.from, status, row.event));
      RecordingWorld world;
      const bool admitted = row.guard == "gate" || row.guard.find(to_text(status)) != std::string_view::npos;
      EXPECT_EQ(fire(world, row.from, status, row.event).verdict == Verdict::handled, admitted);
    }
}

TEST(MachineTest, TheActionOfAnInternalRowNamesTheStatusItLeaves) {
  for (const TransitionRow& row : transition_table())
    for (const Status status : kAllStatuses) {
      RecordingWorld world;
      const Outcome outcome = fire(world, row.from, status, row.event);
      if (row.to || outcome.verdict != Verdict::handled) continue;
      EXPECT_EQ(row.action, "set " + std::string(to_text(outcome.status)));
    }
}

TEST(MachineTest, ThePhaseQuestionsAgreeWithTheTable) {
  const auto target = [](Phase from, Event event) -> std::optional<Phase> {
    for (const TransitionRow& row : transition_table())
      if (row.from == from && row.event == event) return row.to;
    return std::nullopt;
  };
  for (const Phase phase : kAllPhases) {
    SCOPED_TRACE(to_text(phase));
    EXPECT_EQ(next_phase(phase), target(phase, Event::advance));
    EXPECT_EQ(rollback_phase(phase), target(phase, Event::rollback));
  }
}

TEST(MachineTest, EventsAndTheirWordsAreOneToOne) {
  for (const Event event : kAllEvents) EXPECT_EQ(event_from_text(to_text(event)), event);
  constexpr std::array<std::string_view, 7> words{"advance", "rollback", "pause", "resume",
                                                  "settle",  "fail",     "retry"};
  for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(to_text(kAllEvents.at(i)), words.at(i));
  for (const std::string_view wrong : {"", "Advance", "advance ", "paused", "drop"})
    EXPECT_EQ(event_from_text(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace crossfade
