#include "base/result.hpp"

namespace mayfly {

const char* to_string(Errc code) {
  switch (code) {
    case Errc::kInvalidInput: return "invalid_input";
    case Errc::kNotFound: return "not_found";
    case Errc::kCorrupt: return "corrupt";
    case Errc::kIo: return "io";
    case Errc::kPeerLost: return "peer_lost";
    case Errc::kUnreachable: return "unreachable";
    case Errc::kAborted: return "aborted";
    case Errc::kDeadline: return "deadline";
    case Errc::kRefused: return "refused";
    case Errc::kUnsupported: return "unsupported";
    case Errc::kDiverged: return "diverged";
  }
  UNREACHABLE("every Errc has a name");
}

}  // namespace mayfly
