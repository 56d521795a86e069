#include "collectives/parameter_server/lease_message.hpp"

namespace mayfly::parameter_server {

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

}  // namespace mayfly::parameter_server
