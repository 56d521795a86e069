#include "collectives/parameter_server/message.hpp"

#include <bit>
#include <cstddef>

#include "base/check.hpp"
#include "base/digest.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint32_t kMagic = 0x5350594d;  // "MYPS"
constexpr std::uint8_t kFormat = 6;

std::uint64_t hash_of(ByteSpan first, ByteSpan second = {}) {
  Digester digester;
  digester.add(first);
  digester.add(second);
  const Digest digest = digester.finish();
  std::uint64_t word = 0;
  static_assert(sizeof digest >= sizeof word);
  std::memcpy(&word, &digest, sizeof word);
  return word;
}

std::uint64_t header_hash(const Header& header) {
  return hash_of(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, check)));
}

}  // namespace

void seal(Header& header) {
  header.magic = kMagic;
  header.format = kFormat;
  header.check = header_hash(header);
}

Result<void> check_header(const Header& header, std::uint64_t payload_max) {
  if (header.magic != kMagic || header.format != kFormat) {
    return Error{Errc::kCorrupt, "not a message of this version's parameter servers"};
  }
  if (header.check != header_hash(header)) {
    return Error{Errc::kCorrupt, "a damaged message"};
  }
  if (header.type < MessageType::kHello || header.type > MessageType::kTaken) {
    return Error{Errc::kCorrupt, "a message of an unknown type"};
  }
  const bool may_lie_in_slot =
      header.type == MessageType::kPush || header.type == MessageType::kParameters;
  if (header.slot != 0 && !may_lie_in_slot) {
    return Error{Errc::kCorrupt, "a message of a type that is not shared"};
  }
  if (header.payload_bytes > payload_max) {
    return Error{Errc::kCorrupt, "a message of " + std::to_string(header.payload_bytes) +
                                     " bytes, at most " + std::to_string(payload_max) +
                                     " are expected"};
  }
  return {};
}

std::uint64_t payload_hash(ByteSpan first, ByteSpan second) {
  return hash_of(first, second) | 1;
}

Header header_of(const Lease& lease) {
  Header header;
  header.type = MessageType::kLease;
  header.lease_kind = static_cast<std::uint8_t>(lease.kind);
  header.flags = lease.version ? flags::kExact : 0;
  header.flags |= lease.at_once ? flags::kAtOnce : 0;
  header.version = lease.version.value_or(0);
  header.slice = lease.first;
  header.count = lease.count;
  header.clock = lease.clock;
  header.serial = lease.serial;
  if (lease.rewind) {
    header.rewound_at = lease.rewind->at;
    header.rewound_to = lease.rewind->to;
  }
  return header;
}

Result<Lease> lease_of(const Header& header) {
  Lease lease;
  lease.serial = header.serial;
  lease.kind = static_cast<LeaseKind>(header.lease_kind);
  lease.first = header.slice;
  lease.count = header.count;
  lease.clock = header.clock;
  lease.at_once = (header.flags & flags::kAtOnce) != 0;
  if (header.rewound_at > 0) {
    lease.rewind = Rewind{header.rewound_at, header.rewound_to};
  }
  if ((header.flags & flags::kExact) != 0) {
    lease.version = header.version;
  }
  if (lease.kind < LeaseKind::kCompute || lease.kind > LeaseKind::kProbe) {
    return Error{Errc::kCorrupt, "a lease of an unknown kind"};
  }
  return lease;
}

ShardEvent event_of(const Header& header) {
  ShardEvent event;
  event.push.worker = MemberId{header.worker};
  event.push.clock = header.clock;
  event.serial = header.serial;
  if (header.rewound_at > 0) {
    event.rewind = Rewind{header.rewound_at, header.rewound_to};
  }
  switch (header.type) {
    case MessageType::kHello: event.kind = ShardEventKind::kConnected; break;
    case MessageType::kRest: event.kind = ShardEventKind::kRest; break;
    case MessageType::kPull:
      event.kind = ShardEventKind::kPull;
      event.push.wanted = header.wanted;
      break;
    case MessageType::kPush:
      event.kind = ShardEventKind::kPush;
      event.push.slice = header.slice;
      event.push.base_version = header.version;
      event.loss = header.loss;
      event.microbatches = header.count;
      event.push.at_once = (header.flags & flags::kAtOnce) != 0;
      event.wants_lease = (header.flags & flags::kWantsLease) != 0;
      if ((header.flags & flags::kAsks) != 0) {
        event.push.wanted = header.wanted;
      }
      break;
    default: event.kind = ShardEventKind::kHold;
  }
  return event;
}

MessageType order_type(ShardEventKind kind) {
  switch (kind) {
    case ShardEventKind::kWorkers: return MessageType::kRoster;
    case ShardEventKind::kStragglers: return MessageType::kStragglers;
    case ShardEventKind::kHold: return MessageType::kHold;
    case ShardEventKind::kPush:
    case ShardEventKind::kPull:
    case ShardEventKind::kRest:
    case ShardEventKind::kConnected: break;
  }
  UNREACHABLE("an event that a worker causes");
}

std::vector<std::uint64_t> words_of(const ShardEvent& event) {
  std::vector<std::uint64_t> words;
  for (const MemberId worker : event.workers) {
    words.push_back(value(worker));
  }
  for (const auto& [worker, ratio] : event.stragglers) {
    words.push_back(value(worker));
    words.push_back(std::bit_cast<std::uint64_t>(ratio));
  }
  return words;
}

ShardEvent roster_of(const std::vector<std::uint64_t>& words) {
  ShardEvent event{.kind = ShardEventKind::kWorkers};
  for (const std::uint64_t word : words) {
    event.workers.insert(MemberId{word});
  }
  return event;
}

ShardEvent stragglers_of(const std::vector<std::uint64_t>& words) {
  ShardEvent event{.kind = ShardEventKind::kStragglers};
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    event.stragglers[MemberId{words[i]}] = std::bit_cast<double>(words[i + 1]);
  }
  return event;
}

}  // namespace mayfly::parameter_server
