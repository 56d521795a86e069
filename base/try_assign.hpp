#pragma once

// TRY (base/result.hpp) for a Result with a value.

#include <utility>

#include "base/result.hpp"

/// Evaluates an expression that is a Result with a value. If it failed, the enclosing function
/// returns the error; otherwise `target` takes the value: a variable, or the declaration of one
/// (`auto name`). It is several statements, so it does not replace the body of an if.
#define TRY_ASSIGN(target, ...) TRY_ASSIGN_BY(TRY_NAME(tried_, __LINE__), target, __VA_ARGS__)
#define TRY_ASSIGN_BY(result, target, ...) \
  auto result = (__VA_ARGS__);             \
  if (!result.ok()) {                      \
    return std::move(result).error();      \
  }                                        \
  target = std::move(result).value()
#define TRY_NAME(word, line) TRY_NAME_OF(word, line)
#define TRY_NAME_OF(word, line) word##line
