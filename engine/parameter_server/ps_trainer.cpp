#include "engine/parameter_server/ps_trainer.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/check.hpp"
#include "base/log.hpp"
#include "elastic/net/member_client.hpp"
#include "engine/config/ps_settings.hpp"
#include "engine/parameter_server/sgd_shard.hpp"
#include "engine/run/checkpoint_store.hpp"
#include "engine/run/records.hpp"

namespace mayfly::engine {
namespace {

using parameter_server::ConnectionFault;
using parameter_server::FlowAction;
using parameter_server::PayloadTarget;
using parameter_server::ShardClients;
namespace flow = parameter_server::flow;

constexpr Duration kTurn = milliseconds(200);  // a last resort: every event wakes this thread
constexpr Duration kLostCountTimeout = seconds(2);

std::span<std::byte> bytes_of(std::span<float> floats) {
  return std::as_writable_bytes(floats);
}

/// The first part of a target must not be empty.
PayloadTarget target_in(const ShardValues& values) {
  if (values.statistics.empty()) {
    return {bytes_of(values.parameters), {}};
  }
  return {bytes_of(values.statistics), bytes_of(values.parameters)};
}

}  // namespace

PsTrainer::PsTrainer(PsTrainerParts parts, const nn::ModelState& initial)
    : parts_(parts),
      link_(parts.client, next(initial.committed), Step{parts.job.total_steps},
            {[this](const elastic::View& view) {
               if (parts_.server != nullptr) {
                 parts_.server->meet(view);
               }
               has_new_view_ = true;
               wake_.notify();
             },
             [this] {
               if (parts_.server != nullptr) {
                 parts_.server->hold();
               }
             },
             [this] {
               parts_.pool.interrupt();
               wake_.notify();
             }}),
      flow_(parts.ps.shards),
      servers_(parts.job.config),
      recorded_(initial.committed),
      saved_(0, value(initial.committed)) {
  held_ = blank_state();
  fresh_ = blank_state();
  parts_.pool.compute_with(held_);
  parts_.pool.state_replaced();  // because adoptions_, which numbers states, begins at 0 again
}

nn::ModelState PsTrainer::blank_state() const {
  nn::ModelState state;
  state.parameters = AlignedBuffer<float>(parts_.job.model.parameter_count);
  state.momentum = AlignedBuffer<float>(parts_.job.model.parameter_count);
  state.statistics = AlignedBuffer<float>(parts_.job.model.statistic_count);
  return state;
}

elastic::member_effect::Leave PsTrainer::run() {
  parts_.pool.clear_interrupt();
  while (!has_leave_order()) {
    if (has_new_view_.exchange(false)) {
      follow_view();
    }
    if (clients_ == nullptr || over_ || failed_) {
      wait();
    } else {
      follow_rewind();
      act(flow_.next());
    }
  }
  parts_.pool.clear_interrupt();
  parts_.pool.discard();
  const elastic::member_effect::Leave leave = *link_.leave_order();
  if (leave.write_checkpoint && !over_) {
    save_last_state();
  }
  clients_.reset();  // so that no server waits for this worker any more
  return leave;
}

void PsTrainer::wait() {
  parts_.board.enter(elastic::Activity::kIdle, Step{});
  if (clients_ != nullptr) {
    clients_->wait(monotonic_now() + kTurn);
    return;
  }
  pollfd polled{wake_.fd(), POLLIN, 0};
  (void)::poll(&polled, 1, static_cast<int>(kTurn / milliseconds(1)));
  wake_.clear();
}

void PsTrainer::follow_view() {
  const std::optional<elastic::View> view = link_.view();
  if (!view || view->id == seen_) {
    return;
  }
  seen_ = view->id;
  if (failed_ && !has_lost_servers_) {
    return;
  }
  if (const Result<void> known = servers_.follow(*view); !known.ok()) {
    fail(known.error().detail);
    return;
  }
  if (servers_.placement().is_torn()) {
    report_lost_servers(*view);
    return;
  }
  if (clients_ == nullptr) {
    Result<std::unique_ptr<Clients>> connected = connect();
    if (!connected.ok()) {
      fail(connected.error().detail);
      return;
    }
    clients_ = std::move(connected).value();
  }
  clients_->set_view(view->id, view->key);
  for (std::uint32_t shard = 0; shard < parts_.ps.shards; ++shard) {
    if (const Result<void> moved = clients_->move_to(shard, *servers_.leader_address(shard));
        !moved.ok()) {
      fail(moved.error().detail);
    }
  }
}

/// If training has diverged and fallen back: the numbers of slices refer to other samples now.
void PsTrainer::follow_rewind() {
  if (flow_.rewind() && !parts_.ps.plan.rewound()) {
    parts_.ps.plan.fall_back(*flow_.rewind());
  }
}

Result<std::unique_ptr<ShardClients>> PsTrainer::connect() {
  parameter_server::ShardClientsOptions options;
  options.self = parts_.client.id();
  options.payload_hashes = parts_.job.config.ps_hashes;
  options.wake = &wake_;
  options.delay = parts_.delay;
  options.on_unreachable = [this](std::uint32_t shard, ConnectionFault fault) {
    report_unreachable(shard, fault);
  };
  for (std::uint32_t shard = 0; shard < parts_.ps.shards; ++shard) {
    const ShardRange range = parts_.ps.ranges[shard];
    options.addresses.push_back(*servers_.leader_address(shard));
    options.elements.push_back(range.last - range.first);
  }
  return ShardClients::make(options, flow_, [this](std::uint32_t shard, bool with_momentum) {
    return target(shard, with_momentum);
  });
}

/// Ends the job, which has lost shards, with a report on the lost updates. Each worker publishes
/// the newest version of a shard that it knows and its last checkpoint; the first worker reports
/// the maxima, or that of the next view if it is lost before. An update that no worker knows was
/// never acknowledged, so its slice does not count.
void PsTrainer::report_lost_servers(const elastic::View& view) {
  failed_ = has_lost_servers_ = true;
  std::vector<MemberId> workers;
  for (const elastic::ViewMember& member : view.members) {
    if (is_worker(member.address)) {
      workers.push_back(member.id);
    }
  }
  std::uint64_t seen = 0;
  for (std::uint32_t shard = 0; shard < parts_.ps.shards; ++shard) {
    seen = std::max(seen, clients_->known_version(shard));
  }
  const auto key_of = [](MemberId id) { return fmt::format("ps-seen/{}", value(id)); };
  WireWriter own;
  own.put(seen);
  own.put(saved_.first);
  own.put(saved_.second);
  (void)parts_.client.store_set(view.id, key_of(parts_.client.id()), own.take());
  if (workers.empty() || workers.front() != parts_.client.id()) {
    return;
  }
  for (const MemberId worker : workers) {
    const Result<Bytes> other =
        parts_.client.store_get(view.id, key_of(worker), monotonic_now() + kLostCountTimeout);
    if (other.ok()) {
      WireReader reader(other.value());
      seen = std::max(seen, reader.get<std::uint64_t>());
      const auto version = reader.get<std::uint64_t>();
      saved_ = std::max(saved_, {version, reader.get<std::uint64_t>()});
    }
  }
  fail(
      fmt::format("{} of {} parameter servers is lost, and with it {} updates at most, those since "
                  "step {}; start again with --resume",
                  servers_.placement().lost().size(), server_count(parts_.job.config),
                  seen - std::min(seen, saved_.first), saved_.second));
}

PayloadTarget PsTrainer::target(std::uint32_t shard, bool with_momentum) {
  const ShardRange range = parts_.ps.ranges[shard];
  if (!with_momentum) {
    return target_in(values_in(fresh_, parts_.layout, range));
  }
  return {bytes_of(std::span(states_[shard].data(), states_[shard].size())), {}};
}

/// Follows new views while it waits, because a server that does not read may be lost.
bool PsTrainer::wait_until_sent() {
  while (!clients_->all_sent() && !has_leave_order() && !failed_) {
    clients_->wait(monotonic_now() + kTurn);
    if (has_new_view_.exchange(false)) {
      follow_view();
    }
  }
  return clients_->all_sent();
}

void PsTrainer::act(const FlowAction& action) {
  if (std::holds_alternative<flow::Wait>(action)) {
    wait();
  } else if (const auto* pull = std::get_if<flow::Pull>(&action)) {
    clients_->pull(*pull);
  } else if (const auto* adopted = std::get_if<flow::Adopt>(&action)) {
    adopt(*adopted);
  } else if (const auto* work = std::get_if<flow::Compute>(&action)) {
    compute(*work);
  } else if (const auto* tried = std::get_if<flow::Probe>(&action)) {
    probe(*tried);
  } else if (const auto* save = std::get_if<flow::Snapshot>(&action)) {
    snapshot(*save);
  } else if (std::holds_alternative<flow::Rest>(action)) {
    clients_->rest();
  } else {
    finish();
  }
}

void PsTrainer::adopt(const flow::Adopt& adopted) {
  held_.committed = Step{++adoptions_};  // the number shows engines that the weights have changed
  if (adopted.shards.size() == parts_.ps.shards) {
    parts_.reach.reached_all();
    std::swap(held_.parameters, fresh_.parameters);
    std::swap(held_.statistics, fresh_.statistics);
    return;
  }
  for (const std::uint32_t shard : adopted.shards) {
    const ShardRange range = parts_.ps.ranges[shard];
    const ShardValues from = values_in(fresh_, parts_.layout, range);
    const ShardValues to = values_in(held_, parts_.layout, range);
    std::ranges::copy(from.statistics, to.statistics.begin());
    std::ranges::copy(from.parameters, to.parameters.begin());
  }
}

/// Adds the gradient of the slice to the pool's sums; false after an order to leave or a failure.
bool PsTrainer::compute_slice(const MicrobatchSlice& slice) {
  std::vector<std::uint32_t> microbatches(slice.count);
  std::iota(microbatches.begin(), microbatches.end(), slice.first);
  if (!wait_until_sent()) {  // the previous slice's sums, which the pool would overwrite
    return false;
  }
  parts_.loader.request(slice.step, microbatches);
  parts_.board.enter(elastic::Activity::kCompute, Step{slice.step});
  parts_.pool.begin_step(slice.step, {}, {});
  parts_.pool.add_microbatches(microbatches);
  if (!parts_.pool.wait_for_step()) {
    if (const std::optional<Error> failure = parts_.pool.failure()) {
      fail(failure->detail);
    }
    return false;
  }
  return true;
}

void PsTrainer::probe(const flow::Probe& action) {
  for (std::uint32_t i = 0; i < action.count; ++i) {
    if (!compute_slice(parts_.ps.microbatches_of(parts_.job, action.first + i))) {
      return;
    }
  }
  parts_.board.enter(elastic::Activity::kIdle, Step{});
}

void PsTrainer::compute(const flow::Compute& action) {
  const MicrobatchSlice slice = parts_.ps.microbatches_of(parts_.job, action.slice);
  if (!compute_slice(slice)) {
    return;
  }
  const GradientSums& sums = parts_.pool.sums();
  if (sums.totals().nonfinite > 0 && !may_diverge(action.slice)) {
    fail(
        fmt::format("the gradient of step {} is not finite: training has diverged; a lower --lr, "
                    "a warm-up (--asp-warm-up) or --on-divergence bsp may help",
                    slice.step));
    return;
  }
  const auto* const floats = reinterpret_cast<const float*>(sums.words().data());
  std::vector<std::span<const float>> gradients;
  for (const ShardRange& range : parts_.ps.ranges) {
    gradients.emplace_back(floats + range.first, range.last - range.first);
  }
  parts_.board.enter(elastic::Activity::kIdle, Step{});
  clients_->push(action, facts_of(slice), gradients);
}

/// Whether a loss that is not finite means that training has diverged, as the first shard decides.
bool PsTrainer::may_diverge(std::uint64_t slice) const {
  const PsJob& ps = parts_.ps;
  return ps.divergence.falls_back && parameter_server::is_stream(ps.plan.phase_of(slice).policy);
}

parameter_server::PushFacts PsTrainer::facts_of(const MicrobatchSlice& slice) const {
  const GradientSums& sums = parts_.pool.sums();
  const StepTotals totals = sums.totals();
  parameter_server::PushFacts facts;
  facts.microbatches = slice.count;
  facts.samples = static_cast<std::uint32_t>(totals.samples);
  facts.correct = static_cast<std::uint32_t>(totals.correct);
  facts.sample_hash = totals.sample_hash;
  const auto loss = std::bit_cast<float>(sums.words().front());
  facts.loss = totals.nonfinite > 0 ? std::numeric_limits<double>::quiet_NaN() : loss;
  return facts;
}

void PsTrainer::finish() {
  over_ = true;
  recorded_ = Step{parts_.job.total_steps};
  clients_->bye();
  (void)wait_until_sent();
  link_.finished();
}

void PsTrainer::fail(const std::string& reason) {
  failed_ = true;
  log::error(reason);
  parts_.client.send_report(encode_record(FatalRecord{reason}));
}

bool PsTrainer::wait_for_link() {
  if (parts_.reach.is_away(monotonic_now())) {
    parts_.board.enter(elastic::Activity::kIdle, Step{});
    parts_.reach.wait(wake_, [this] { return has_leave_order(); });
  }
  return !has_leave_order();
}

/// Reports that a shard cannot be reached. If this worker is cut off, it asks to be evicted: that
/// harms no member, and the others can continue at once. Otherwise the coordinator decides.
void PsTrainer::report_unreachable(std::uint32_t shard, ConnectionFault fault) {
  const std::optional<elastic::View> view = link_.view();
  const std::optional<std::string> address = servers_.leader_address(shard);
  if (failed_ || !view || !address) {
    return;  // the job ends
  }
  if (view->id != seen_) {
    return;  // there is a newer view, perhaps without that server
  }
  if (view->id == cut_off_in_) {
    return;  // already reported; other shards are usually behind the same link
  }
  const std::string what = fmt::format("shard {} on member {} ({}) does not answer", shard,
                                       value(servers_.leader_member(shard)), *address);
  if (over_ || fault != ConnectionFault::kCut) {
    link_.broke(std::nullopt, what);
    return;
  }
  const std::uint64_t self = value(parts_.client.id());
  if (const std::optional<MemberId> server = servers_.server_to_give_up(*view, shard)) {
    note("server_cut_off",
         fmt::format("{} to member {}, the only worker: the server has to leave", what, self));
    link_.broke(server, what);
    return;
  }
  const bool is_last = count_workers(*view) == 1;
  note("worker_cut_off",
       fmt::format("{} to member {}{}", what, self,
                   is_last ? ", the only worker: the job waits until some worker's link works"
                           : ", which joins again when its link works"));
  cut_off_in_ = view->id;
  parts_.reach.cut_off({*address}, monotonic_now());
  link_.cut_off(what);
}

void PsTrainer::note(const char* kind, const std::string& text) {
  log::warning(text);
  parts_.client.send_report(encode_record(NoteRecord{kind, text}));
}

}  // namespace mayfly::engine
