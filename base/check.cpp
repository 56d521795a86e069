#include "base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace mayfly {

void check_failed(const char* condition, const char* why, const char* file, int line) {
  std::fprintf(stderr, "mayfly: internal error at %s:%d: %s (%s)\n", file, line, why, condition);
  std::abort();
}

}  // namespace mayfly
