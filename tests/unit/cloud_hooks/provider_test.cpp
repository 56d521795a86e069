#include "cloud_hooks/core/provider.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace mayfly::cloud_hooks {
namespace {

TEST(ProviderErrorKind, EveryKindHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(ProviderErrorKind::kConfig); ++kind) {
    names.insert(to_string(static_cast<ProviderErrorKind>(kind)));
  }
  EXPECT_EQ(names.size(), 5u);
}

}  // namespace
}  // namespace mayfly::cloud_hooks
