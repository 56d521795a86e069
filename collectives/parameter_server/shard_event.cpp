#include "collectives/parameter_server/shard_event.hpp"

#include <bit>

namespace mayfly::parameter_server {

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
