#pragma once

// How a new worker finds a coordinator that takes it in.

#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/time.hpp"
#include "elastic/net/handshake.hpp"

namespace mayfly::elastic {

struct FirstSession {
  std::size_t endpoint = 0;  ///< index of the one that answered
  OpenSession session;
};

/// Asks one after the other, round and round until the deadline, while nobody listens or those who
/// do are not in charge. Sleeps in between. kRefused with the reason if one refuses for good;
/// otherwise the failure of the last attempt.
[[nodiscard]] Result<FirstSession> open_first_session(const std::vector<std::string>& endpoints,
                                                      ByteSpan token, const Hello& hello,
                                                      Instant deadline);

}  // namespace mayfly::elastic
