#include "collectives/parameter_server/message.hpp"

#include <cstddef>

#include "base/digest.hpp"

namespace mayfly::parameter_server {
namespace {

constexpr std::uint32_t kMagic = 0x5350594d;  // "MYPS"
constexpr std::uint8_t kFormat = 4;

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

}  // namespace mayfly::parameter_server
