// The transition table and its engine. The only file that includes Boost.MSM.
#include "crossfade/cutover/machine.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/mp11.hpp>
#include <boost/mp11/mpl.hpp>  // lets an mp_list be the transition table: no limit of rows, no macros
#include <boost/msm/back/state_machine.hpp>
#include <boost/msm/front/functor_row.hpp>
#include <boost/msm/front/state_machine_def.hpp>

#include "crossfade/core/error.hpp"

namespace crossfade {
namespace {

namespace mp = boost::mp11;
namespace msm = boost::msm;

// What guards and actions see of one event.
struct Context {
  MachineWorld& world;
  Status status;  // the actions leave the new one here
  bool gate_said_no = false;

  bool gate(Phase from, Phase to) {
    gate_said_no = !world.gate_open(from, to);
    return !gate_said_no;
  }
};

template <Phase P>
struct In : msm::front::state<> {
  static constexpr Phase phase = P;
};

template <Event E>
struct On {
  static constexpr Event event = E;
};

// ---- guards ----

template <Status... Admitted>
struct StatusIs {
  bool operator()(const auto&, auto& machine, auto&, auto&) const {
    return ((machine.context.status == Admitted) || ...);
  }
};
struct WhileRunning : StatusIs<Status::running> {
  static constexpr std::string_view name = "running";
};
struct WhilePaused : StatusIs<Status::paused> {
  static constexpr std::string_view name = "paused";
};
struct WhileFailed : StatusIs<Status::failed> {
  static constexpr std::string_view name = "failed";
};
struct WhileRunningOrSettled : StatusIs<Status::running, Status::settled> {
  static constexpr std::string_view name = "running or settled";
};

struct Gate {
  static constexpr std::string_view name = "gate";
  bool operator()(const auto&, auto& machine, auto& from, auto& to) const {
    return machine.context.gate(from.phase, to.phase);
  }
};
// One guard, not two: a status that forbids the event must answer before the gate is asked.
struct SettledAndGate {
  static constexpr std::string_view name = "settled and gate";
  bool operator()(const auto&, auto& machine, auto& from, auto& to) const {
    return machine.context.status == Status::settled && machine.context.gate(from.phase, to.phase);
  }
};

// ---- actions ----

// A phase without work of its own is settled as soon as it is entered.
constexpr Status status_on_entry(Phase phase) {
  switch (phase) {
    case Phase::dry_run:
    case Phase::backfill:
    case Phase::dual_write:
    case Phase::compare:
    case Phase::switched:
      return Status::running;
    case Phase::planned:
    case Phase::dropped:
    case Phase::rolled_back:
      return Status::settled;
  }
  std::terminate();
}

struct Cross {
  static constexpr std::string_view name = "cross";
  void operator()(const auto&, auto& machine, auto& from, auto& to) const {
    machine.context.world.cross(from.phase, to.phase);
    machine.context.status = status_on_entry(to.phase);
  }
};

template <Status S>
struct SetStatus {
  void operator()(const auto&, auto& machine, auto&, auto&) const { machine.context.status = S; }
};
struct SetRunning : SetStatus<Status::running> {
  static constexpr std::string_view name = "set running";
};
struct SetPaused : SetStatus<Status::paused> {
  static constexpr std::string_view name = "set paused";
};
struct SetSettled : SetStatus<Status::settled> {
  static constexpr std::string_view name = "set settled";
};
struct SetFailed : SetStatus<Status::failed> {
  static constexpr std::string_view name = "set failed";
};

// ---- the table ----

using msm::front::none;  // as target: an internal transition, the phase stays
using msm::front::Row;

template <Phase From, Phase To>
using Advance = Row<In<From>, On<Event::advance>, In<To>, Cross, SettledAndGate>;

template <Phase From, Phase To>
using Rollback = Row<In<From>, On<Event::rollback>, In<To>, Cross, Gate>;

template <Phase P>
using Internal = mp::mp_list<  //
    Row<In<P>, On<Event::pause>, none, SetPaused, WhileRunningOrSettled>,
    Row<In<P>, On<Event::resume>, none, SetRunning, WhilePaused>,
    Row<In<P>, On<Event::settle>, none, SetSettled, WhileRunning>,
    Row<In<P>, On<Event::fail>, none, SetFailed, WhileRunningOrSettled>,
    Row<In<P>, On<Event::retry>, none, SetRunning, WhileFailed>>;

using Table = mp::mp_append<  //
    mp::mp_list<              //
        Advance<Phase::planned, Phase::dry_run>, Advance<Phase::dry_run, Phase::backfill>,
        Advance<Phase::backfill, Phase::dual_write>, Advance<Phase::dual_write, Phase::compare>,
        Advance<Phase::compare, Phase::switched>, Advance<Phase::switched, Phase::dropped>,
        Rollback<Phase::switched, Phase::compare>, Rollback<Phase::compare, Phase::dual_write>,
        Rollback<Phase::dual_write, Phase::backfill>, Rollback<Phase::backfill, Phase::dry_run>,
        Rollback<Phase::dry_run, Phase::planned>, Rollback<Phase::planned, Phase::rolled_back>>,
    Internal<Phase::planned>, Internal<Phase::dry_run>, Internal<Phase::backfill>,
    Internal<Phase::dual_write>, Internal<Phase::compare>, Internal<Phase::switched>>;

// ---- the table as data ----

// The row's own arguments are read, not its members: MSM makes an internal row's Target its Source.
template <class Source, class Trigger, class Target, class Action, class Guard>
constexpr TransitionRow as_data(Row<Source, Trigger, Target, Action, Guard>) {
  std::optional<Phase> to;
  if constexpr (!std::is_same_v<Target, none>) to = Target::phase;
  return {Source::phase, Trigger::event, to, Guard::name, Action::name};
}

constexpr auto kRows = []<class... R>(mp::mp_list<R...>) { return std::array{as_data(R{})...}; }(Table{});

constexpr bool has_row(Phase from, Event event) {
  return std::any_of(kRows.begin(), kRows.end(),
                     [&](const TransitionRow& row) { return row.from == from && row.event == event; });
}

constexpr bool is_open(Phase phase) { return phase != Phase::dropped && phase != Phase::rolled_back; }

static_assert(std::all_of(kAllPhases.begin(), kAllPhases.end(),
                          [](Phase phase) { return has_row(phase, Event::rollback) == is_open(phase); }),
              "rollback is possible from every open phase and from no closed one");

static_assert(std::all_of(kRows.begin(), kRows.end(),
                          [](const TransitionRow& row) { return is_open(row.from); }),
              "no event is legal in a closed phase");

// MSM tries the rows of one phase and event from the last to the first and never warns of two that both
// match. One row each also keeps "which part of the guard said no" a question with one answer.
constexpr bool one_row_per_phase_and_event() {
  for (std::size_t a = 0; a < kRows.size(); ++a)
    for (std::size_t b = a + 1; b < kRows.size(); ++b)
      if (kRows[a].from == kRows[b].from && kRows[a].event == kRows[b].event) return false;
  return true;
}
static_assert(one_row_per_phase_and_event(), "two rows with the same phase and event");

// ---- the engine ----

struct Definition : msm::front::state_machine_def<Definition> {
  using initial_state = In<Phase::planned>;
  using transition_table = Table;
  // With a queue, a guard or action that throws leaves the machine marked as busy: later events are queued,
  // never run, and reported as handled.
  using no_message_queue = int;

  explicit Definition(Context& seen) : context(seen) {}

  void no_transition(const auto&, auto&, int) {}                         // the result code says it
  void exception_caught(const auto&, auto&, std::exception&) { throw; }  // the same object, its type kept

  Context& context;
};
using Machine = msm::back::state_machine<Definition>;

// MSM numbers its states by their place in the table: a number never leaves this file.
constexpr auto kStateIds = []<std::size_t... I>(std::index_sequence<I...>) {
  return std::array{int{msm::back::get_state_id<Machine::stt, In<kAllPhases[I]>>::value}...};
}
(std::make_index_sequence<kAllPhases.size()>{});

Phase phase_of(const Machine& machine) {
  const auto found = std::find(kStateIds.begin(), kStateIds.end(), machine.current_state()[0]);
  return kAllPhases.at(static_cast<std::size_t>(found - kStateIds.begin()));
}

// An archive for MSM's persistence hook that sets the active state and nothing else. Through the hook no
// start(), no entry action and no extra row is needed.
struct StateLoader {
  int state;

  template <class T>
  void operator&(T& member) const {
    if constexpr (std::is_same_v<T, int[1]>) member[0] = state;
  }
};

void restore(Machine& machine, Phase phase) {
  const auto found = std::find(kAllPhases.begin(), kAllPhases.end(), phase);
  StateLoader loader{kStateIds.at(static_cast<std::size_t>(found - kAllPhases.begin()))};
  machine.serialize(loader, 0U);
  // A Boost whose hook no longer reaches the state would leave every migration in planned.
  if (phase_of(machine) != phase) {
    throw Error(ErrorCode::internal_error,
                "The phase machine could not be restored at phase " + std::string(to_text(phase)) + ".");
  }
}

msm::back::HandledEnum process(Machine& machine, Event event) {
  switch (event) {
    case Event::advance:
      return machine.process_event(On<Event::advance>{});
    case Event::rollback:
      return machine.process_event(On<Event::rollback>{});
    case Event::pause:
      return machine.process_event(On<Event::pause>{});
    case Event::resume:
      return machine.process_event(On<Event::resume>{});
    case Event::settle:
      return machine.process_event(On<Event::settle>{});
    case Event::fail:
      return machine.process_event(On<Event::fail>{});
    case Event::retry:
      return machine.process_event(On<Event::retry>{});
  }
  return msm::back::HANDLED_FALSE;
}

}  // namespace

Outcome fire(MachineWorld& world, Phase phase, Status status, Event event) {
  Context context{world, status};
  Machine machine{std::ref(context)};
  restore(machine, phase);
  if (process(machine, event) == msm::back::HANDLED_TRUE) {
    return {Verdict::handled, phase_of(machine), context.status};
  }
  return {context.gate_said_no ? Verdict::refused : Verdict::illegal, phase, status};
}

std::span<const TransitionRow> transition_table() { return kRows; }

}  // namespace crossfade
