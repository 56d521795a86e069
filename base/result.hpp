#pragma once

// Errors that are expected in operation (a peer is lost, a file is truncated, an input is wrong)
// are values. An error has a code that decides the reaction, a readable text, and the member that
// caused it (for the membership layer).

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "base/ids.hpp"

namespace mayfly {

enum class Errc {
  kInvalidInput,  ///< the caller's data is wrong; trying again will not help
  kNotFound,      ///< a file or name that was given does not exist
  kCorrupt,       ///< stored or received bytes are not in the expected format
  kIo,            ///< the operating system refused: disk full, permission, ...
  kPeerLost,      ///< another member stopped answering; `culprit` is that member, if known
  kUnreachable,   ///< packets to a member's host are not acknowledged; `culprit` is that member
  kAborted,       ///< this operation was stopped on purpose; nothing is wrong with it
  kDeadline,      ///< the deadline passed; `culprit` is the member that was waited for, if known
  kRefused,       ///< the other side understood the request and rejected it; the text says why
  kUnsupported,   ///< this build or this machine cannot do it
  kDiverged,      ///< numbers are not finite, or members disagree about them
};

/// A short fixed name for logs and records, for example "peer_lost".
[[nodiscard]] const char* to_string(Errc code);

struct [[nodiscard]] Error {
  Errc code;
  std::string detail;                 ///< readable: what happened, where, what to do
  std::optional<MemberId> culprit{};  ///< the member at fault, for the membership layer
};

/// Either a value or an Error. Reading the one that it does not hold is a programming error and
/// aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  [[nodiscard]] T& value() & {
    ENSURE(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    ENSURE(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    ENSURE(ok(), "value() of a failed Result");
    return std::get<0>(std::move(state_));
  }
  [[nodiscard]] const Error& error() const& {
    ENSURE(!ok(), "error() of a successful Result");
    return std::get<1>(state_);
  }
  [[nodiscard]] Error&& error() && {
    ENSURE(!ok(), "error() of a successful Result");
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  [[nodiscard]] const Error& error() const& {
    ENSURE(!ok(), "error() of a successful Result");
    return *error_;
  }
  [[nodiscard]] Error&& error() && {
    ENSURE(!ok(), "error() of a successful Result");
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

/// Evaluates an expression that is a Result. If it failed, the enclosing function returns the
/// error, as a Result of its own type or as any type that an Error converts to.
#define TRY(...)                                                 \
  do {                                                           \
    if (auto tried_result = (__VA_ARGS__); !tried_result.ok()) { \
      return std::move(tried_result).error();                    \
    }                                                            \
  } while (false)

}  // namespace mayfly
