#include "engine/membership/exit_codes.hpp"

#include <cstdio>

#include "base/log.hpp"

namespace mayfly::engine {

int refuse(const Error& error, int code) {
  std::fprintf(stderr, "mayfly: %s\n", error.detail.c_str());
  return code;
}

int fail(const Error& error, int code) {
  log::error(error.detail);
  return code;
}

}  // namespace mayfly::engine
