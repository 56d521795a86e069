#include "elastic/core/messages.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/check.hpp"
#include "elastic/core/message_codec.hpp"
#include "elastic/core/share_codec.hpp"

// Every message names its fields once, in fields(); the same list writes and reads. An encoded
// message is one byte, its place in the Message variant, then the fields.

namespace mayfly::elastic {
namespace {

constexpr std::size_t kNonceBytesMax = 64;
constexpr std::size_t kAddressBytesMax = 512;
constexpr std::size_t kNameBytesMax = 128;
constexpr std::size_t kValueBytesMax = 1024;
constexpr std::size_t kDisputedPartsMax = std::size_t{1} << 16;
constexpr std::size_t kStoreKeyBytesMax = 1024;
constexpr std::size_t kStoreValueBytesMax = 1u << 20;
constexpr std::size_t kReportBytesMax = 3u << 20;
constexpr std::size_t kReplyBytesMax = 8u << 20;  // the status of kMembersMax members
constexpr std::size_t kViewMemberBytesMin = 29;
constexpr std::size_t kViewBaseBytesMin = 20;

// Each microbatch has one owner, so all sets of a view together have fewer runs than the step has
// microbatches.
static_assert(kMembersMax * (kAddressBytesMax + 64 + 8 * kViewBasesMax) +
                      kMicrobatchesMax * 2 * kNumberBytesMax <
                  kMessageBytesMax,
              "the largest view fits a frame");

/// M is const when it is written; `Is<M, X>` selects the field list in both directions.
template <typename M, typename... X>
concept Is = (std::is_same_v<std::remove_const_t<M>, X> || ...);

void fields(auto& io, Is<Challenge> auto& m) {
  io.blob(m.nonce, kNonceBytesMax);
}

void fields(auto& io, Is<Hello> auto& m) {
  io.plain(m.protocol);
  io.choice(m.role, Role::kTransfer);
  io.blob(m.nonce, kNonceBytesMax);
  io.blob(m.proof, kNonceBytesMax);
  io.plain(m.member);
  io.readable_text(m.host);
  io.plain(m.pid);
  io.text(m.address, kAddressBytesMax);
  io.text(m.server, kNameBytesMax);
  io.list(m.fingerprint, kFingerprintPairsMax, 8, [&io](auto& pair) {
    io.text(pair.first, kFingerprintNameBytesMax);
    io.text(pair.second, kFingerprintValueBytesMax);
  });
  io.plain(m.job, m.incarnation, m.author, m.view);
  io.flag(m.joins_again);
  io.plain(m.cores);
}

void fields(auto& io, Is<Welcome> auto& m) {
  io.plain(m.member, m.incarnation, m.author, m.job);
  io.flag(m.resume, m.quorum, m.underway);
}
void fields(auto& io, Is<Refused> auto& m) {
  io.readable_text(m.reason);
  io.choice(m.refusal, Refusal::kElsewhere);
}
void fields(auto& io, Is<Ready> auto& m) {
  io.plain(m.committed, m.state_bytes);
}

void fields(auto& io, Is<Stopped> auto& m) {
  io.plain(m.view, m.committed);
  io.set(m.held);
  io.flag(m.finished, m.failed);
  io.optional(m.culprit, [&io](auto& member) { io.plain(member); });
  io.readable_text(m.detail);
  io.plain(m.observed);
  io.flag(m.contributed);
  io.choice(m.dispute, Dispute::kMicrobatch);
  io.list(m.hashes, kDisputedPartsMax, sizeof(std::uint64_t),
          [&io](auto& hash) { io.plain(hash); });
  io.flag(m.contradicts_itself, m.unanswered);
}

void fields(auto& io, Is<Formed, Synced, ViewWanted> auto& m) {
  io.plain(m.view);
}
void fields(auto& io, Is<Progress> auto& m) {
  io.plain(m.view, m.committed);
  io.milliseconds(m.microbatch_ms);
  io.plain(m.microbatches);
  io.milliseconds(m.stages.fetch_ms);
  io.milliseconds(m.stages.prep_ms);
  io.milliseconds(m.stages.compute_ms);
  io.milliseconds(m.stages.compute_cpu_ms);
  io.plain(m.stages.bytes, m.stages.load_threads, m.stages.compute_threads, m.stages.ahead);
  io.flag(m.stages.yields);
  io.plain(m.use.cpu_ms, m.use.memory_mib);
}

void fields(auto& io, Is<CaughtUp> auto& m) {
  io.plain(m.view, m.committed);
}

void fields(auto& io, Is<WorkerPosition> auto& position) {
  io.choice(position.activity, Activity::kCheckpoint);
  io.plain(position.step, position.microbatch, position.bucket, position.moves);
}

void fields(auto& io, Is<Heartbeat> auto& m) {
  io.optional(m.position, [&io](auto& position) { fields(io, position); });
  io.flag(m.worker_stopped);
}
void fields(auto& io, Is<LeaveRequest> auto& m) {
  io.readable_text(m.reason);
}
void fields(auto& io, Is<Report> auto& m) {
  io.blob(m.payload, kReportBytesMax);
  io.milliseconds(m.age_ms);
}

void fields(auto& io, Is<StoreSet, StoreValue> auto& m) {
  io.plain(m.view);
  io.text(m.key, kStoreKeyBytesMax);
  io.blob(m.value, kStoreValueBytesMax);
}

void fields(auto& io, Is<StoreGet> auto& m) {
  io.plain(m.view);
  io.text(m.key, kStoreKeyBytesMax);
}

void fields(auto& io, Is<WorkerDied> auto& m) {
  io.readable_text(m.detail);
  io.flag(m.is_dead);
  io.plain(m.incarnation, m.author);
}

void fields(auto& io, Is<Stop> auto& m) {
  io.plain(m.view);
  io.flag(m.at_boundary, m.stays);
  io.require(m.at_boundary || !m.stays);
}

void fields(auto& io, Is<ViewMember> auto& m) {
  io.plain(m.id);
  io.text(m.address, kAddressBytesMax);
  io.set(m.first_step);
  io.plain(m.first, m.count);
  io.require(m.first <= kMicrobatchesMax && m.count <= kMicrobatchesMax - m.first);
  io.plain(m.observes);
  io.require(!m.is_observer() || (m.first_step.empty() && m.count == 0));
}

void fields(auto& io, Is<ViewBase> auto& m) {
  io.plain(m.id);
  io.list(m.members, kMembersMax, sizeof(MemberId), [&io](auto& member) { io.plain(member); });
  io.require(!m.members.empty());
}

/// Ranks of members with work, each once, and never the source; empty in a view with observers.
bool may_be_behind(const std::vector<Rank>& behind, Rank source, std::size_t members,
                   bool has_observers) {
  const auto can_lack = [&](Rank rank) { return value(rank) < members && rank != source; };
  return std::ranges::adjacent_find(behind, std::greater_equal<>()) == behind.end() &&
         std::ranges::all_of(behind, can_lack) && (behind.empty() || !has_observers);
}

void fields(auto& io, Is<View> auto& view) {
  io.plain(view.id, view.key, view.committed, view.source);
  io.list(view.behind, kMembersMax, sizeof(Rank), [&io](auto& rank) { io.plain(rank); });
  io.list(view.members, kMembersMax, kViewMemberBytesMin,
          [&io](auto& member) { fields(io, member); });
  io.require(value(view.source) < view.members.size() &&
             !view.members[value(view.source)].is_observer() &&
             may_be_behind(view.behind, view.source, view.members.size(), view.has_observers()));
  io.list(view.bases, kViewBasesMax, kViewBaseBytesMin, [&io](auto& base) { fields(io, base); });
}

void fields(auto& io, Is<ViewDelta::Newcomer> auto& m) {
  io.plain(m.id);
  io.text(m.address, kAddressBytesMax);
}

void fields(auto& io, Is<NewViewDelta> auto& m) {
  auto& delta = m.delta;
  io.plain(delta.base, delta.whole, delta.id, delta.key, delta.committed, delta.source);
  io.list(delta.behind, kMembersMax, sizeof(Rank), [&io](auto& rank) { io.plain(rank); });
  io.list(delta.gone, kMembersMax, sizeof(MemberId), [&io](auto& member) { io.plain(member); });
  io.list(delta.came, kMembersMax, sizeof(MemberId), [&io](auto& came) { fields(io, came); });
  shares(io, delta.shares);
  const auto observes = [](const ViewDelta::Share& share) { return share.observes != ViewId{}; };
  const bool has_observers = std::ranges::any_of(delta.shares, observes);
  io.require(value(delta.source) < delta.shares.size() &&
             !observes(delta.shares[value(delta.source)]) &&
             may_be_behind(delta.behind, delta.source, delta.shares.size(), has_observers));
  io.list(delta.bases, kViewBasesMax, kViewBaseBytesMin, [&io](auto& base) { fields(io, base); });
}

void fields(auto& io, Is<NewView> auto& m) {
  fields(io, m.view);
}

void fields(auto& io, Is<Resume> auto& m) {
  io.plain(m.incarnation);
  io.choice(m.phase, ResumePhase::kStopped);
  io.plain(m.committed, m.state_bytes);
  io.flag(m.is_active, m.has_caught_up);
  io.optional(m.view, [&io](auto& view) { fields(io, view); });
  io.optional(m.last, [&io](auto& last) { fields(io, last); });
  io.set(m.held_before);
  io.milliseconds(m.microbatch_ms);
  io.flag(m.is_leaving);
  io.readable_text(m.leave_reason);
}

void fields(auto& io, Is<Left> auto& m) {
  io.plain(m.incarnation);
}
void fields(auto& io, Is<ReportsTaken> auto& m) {
  io.plain(m.count);
}
void fields(auto& io, Is<NoQuorum> auto& m) {
  io.readable_text(m.detail);
  io.plain(m.skip);
}

void fields(auto& io, Is<Dismiss> auto& m) {
  io.choice(m.reason, DismissReason::kUnreachable);
  io.flag(m.write_checkpoint);
  io.readable_text(m.detail);
  io.flag(m.may_rejoin);
}

void fields(auto& io, Is<Command> auto& m) {
  io.text(m.verb, kNameBytesMax);
  io.text(m.argument, kValueBytesMax);
}

void fields(auto& io, Is<CommandReply> auto& m) {
  io.flag(m.ok);
  io.text(m.text, kReplyBytesMax);
}

constexpr std::size_t kKinds = std::variant_size_v<Message>;

constexpr std::array<const char*, kKinds> kNames = {
    "challenge", "hello",          "welcome",       "refused",      "ready",         "stopped",
    "formed",    "synced",         "progress",      "heartbeat",    "leave_request", "report",
    "store_set", "store_get",      "worker_died",   "stop",         "new_view",      "store_value",
    "dismiss",   "command",        "command_reply", "caught_up",    "resume",        "left",
    "no_quorum", "new_view_delta", "view_wanted",   "reports_taken"};

template <std::size_t Kind>
Message read_fields(WireReader& reader) {
  Message message{std::in_place_index<Kind>};
  Decoder decoder(reader);
  fields(decoder, *std::get_if<Kind>(&message));
  return message;
}

template <std::size_t... Kind>
Message read_kind(std::size_t kind, WireReader& reader, std::index_sequence<Kind...>) {
  using Read = Message (*)(WireReader&);
  constexpr std::array<Read, kKinds> kReaders = {&read_fields<Kind>...};
  return kReaders.at(kind)(reader);
}

struct Words {
  const char* name;
  const char* sentence;
};
constexpr std::array<Words, kActivities> kWords = {{{"idle", "waits for the coordinator"},
                                                    {"form", "forms its group"},
                                                    {"sync", "waits for the state"},
                                                    {"exchange", "waits for an all-reduce"},
                                                    {"load", "waits for its data"},
                                                    {"compute", "computes"},
                                                    {"commit", "applies the update"},
                                                    {"evaluate", "evaluates"},
                                                    {"checkpoint", "writes a checkpoint"}}};

}  // namespace

Result<void> check_fingerprint(
    const std::vector<std::pair<std::string, std::string>>& fingerprint) {
  const auto too_much = [](const std::string& what, std::size_t found, std::size_t most) {
    return Error{Errc::kInvalidInput, "the fingerprint of the job is too large: " + what + " " +
                                          std::to_string(found) + ", and " + std::to_string(most) +
                                          " is the most"};
  };
  if (fingerprint.size() > kFingerprintPairsMax) {
    return too_much("the number of entries is", fingerprint.size(), kFingerprintPairsMax);
  }
  std::set<std::string_view> names;
  for (const auto& [name, value] : fingerprint) {
    const std::string shown = '"' + name.substr(0, kFingerprintNameBytesMax) + '"';
    if (name.size() > kFingerprintNameBytesMax) {
      return too_much("the bytes of the name " + shown + " are", name.size(),
                      kFingerprintNameBytesMax);
    }
    if (value.size() > kFingerprintValueBytesMax) {
      return too_much("the bytes of " + shown + " are", value.size(), kFingerprintValueBytesMax);
    }
    if (!names.insert(name).second) {
      return Error{Errc::kInvalidInput, "the fingerprint has the name " + shown + " twice"};
    }
  }
  return {};
}

Bytes encode(const Message& message) {
  WireWriter writer;
  writer.put(static_cast<std::uint8_t>(message.index()));
  std::visit(
      [&writer](const auto& m) {
        Encoder encoder(writer);
        fields(encoder, m);
      },
      message);
  Bytes bytes = writer.take();
  ENSURE(bytes.size() <= kMessageBytesMax,
         "a message fits a frame if its fields keep their bounds");
  return bytes;
}

Result<Message> decode(ByteSpan bytes) {
  if (bytes.empty() || bytes.size() > kMessageBytesMax) {
    return Error{Errc::kCorrupt, "a control message of " + std::to_string(bytes.size()) +
                                     " bytes; 1 to " + std::to_string(kMessageBytesMax) +
                                     " are possible"};
  }
  WireReader reader(bytes);
  const std::size_t kind = reader.get<std::uint8_t>();
  if (kind >= kKinds) {
    return Error{Errc::kCorrupt, "a control message of unknown kind " + std::to_string(kind)};
  }
  Message message = read_kind(kind, reader, std::make_index_sequence<kKinds>());
  if (!reader.complete()) {
    return Error{Errc::kCorrupt,
                 std::string("a malformed control message of kind ") + kNames.at(kind)};
  }
  return message;
}

void view_fields(Encoder& io, const View& view) {
  fields(io, view);
}

void view_fields(Decoder& io, View& view) {
  fields(io, view);
}

const char* name_of(const Message& message) {
  return kNames.at(message.index());
}

bool is_from_worker(const Message& message) {
  return std::visit(
      []<typename M>(const M&) {
        return Is<M, Ready, Stopped, Formed, Synced, Progress, CaughtUp, Heartbeat, LeaveRequest,
                  Report, StoreSet, StoreGet, ViewWanted, Resume, Left>;
      },
      message);
}

bool waits_for_others(Activity activity) {
  return activity <= Activity::kExchange;
}

const char* name_of(Activity activity) {
  return kWords.at(static_cast<std::size_t>(activity)).name;
}

std::string describe(const WorkerPosition& position) {
  std::string text = kWords.at(static_cast<std::size_t>(position.activity)).sentence;
  if (position.microbatch != kNoPart) {
    text += " microbatch " + std::to_string(position.microbatch);
  }
  if (position.step != Step{}) {
    text += (position.microbatch != kNoPart ? " of step " : " in step ") +
            std::to_string(value(position.step));
  }
  if (position.bucket != kNoPart) {
    text += ", bucket " + std::to_string(position.bucket);
  }
  return text;
}

}  // namespace mayfly::elastic
