#include "engine/processes/exit_codes.hpp"

#include <cstdio>

namespace mayfly::engine {

int refuse(const Error& error, int code) {
  std::fprintf(stderr, "mayfly: %s\n", error.detail.c_str());
  return code;
}

}  // namespace mayfly::engine
