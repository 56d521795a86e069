#include "cloud_hooks/core/provider.hpp"

#include "base/check.hpp"

namespace mayfly::cloud_hooks {

const char* to_string(ProviderErrorKind kind) {
  switch (kind) {
    case ProviderErrorKind::kCapacity: return "capacity";
    case ProviderErrorKind::kQuota: return "quota";
    case ProviderErrorKind::kAuth: return "auth";
    case ProviderErrorKind::kRate: return "rate";
    case ProviderErrorKind::kConfig: return "config";
  }
  UNREACHABLE("all kinds are listed");
}

}  // namespace mayfly::cloud_hooks
