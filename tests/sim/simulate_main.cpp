#include <unistd.h>

#include <exception>
#include <iostream>

#include "base/text.hpp"
#include "tests/sim/simulate.hpp"

int main(int argc, char** argv) {
  mayfly::cli::Context context{std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1, {}, {}, nullptr};
  try {
    return mayfly::sim::run_simulator({argv + 1, argv + argc}, context);
  } catch (const std::exception& failure) {
    return context.complain(mayfly::reason_of(failure), mayfly::cli::kExitFailed);
  }
}
