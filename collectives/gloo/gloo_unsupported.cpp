// Built instead of gloo_transport.cpp where the Gloo library is missing.

#include "collectives/gloo/gloo_transport.hpp"

namespace mayfly::collectives {

Result<std::unique_ptr<Transport>> make_gloo_transport(const GlooOptions& /*options*/) {
  return Error{Errc::kUnsupported, "this build has no Gloo (Debian: libgloo-dev)"};
}

}  // namespace mayfly::collectives
