#pragma once

// For std::visit: one callable of several lambdas, each for the alternatives that it takes.

namespace mayfly {

template <typename... Lambdas>
struct Overloaded : Lambdas... {
  using Lambdas::operator()...;
};
template <typename... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

}  // namespace mayfly
