#include "elastic/net/coordinator_search.hpp"

#include <boost/asio/post.hpp>
#include <memory>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

using boost::system::error_code;

}  // namespace

CoordinatorSearch::CoordinatorSearch(boost::asio::io_context& io,
                                     std::vector<std::string> endpoints, Bytes token,
                                     Introduction introduce, OnAnswer on_answer)
    : io_(io),
      timer_(io),
      endpoints_(std::move(endpoints)),
      token_(std::move(token)),
      introduce_(std::move(introduce)),
      on_answer_(std::move(on_answer)) {}

CoordinatorSearch::~CoordinatorSearch() {
  dialer_.join();
}

void CoordinatorSearch::begin(std::size_t lost, std::uint64_t seed) {
  ReconnectOptions options;
  options.endpoints = endpoints_.size();
  plan_.emplace(options, lost, seed, monotonic_now());
  attempt_next();
}

void CoordinatorSearch::try_others(std::uint32_t skip) {
  ENSURE(plan_.has_value(), "a search has begun");
  plan_->try_elsewhere(skip);
  attempt_next();
}

void CoordinatorSearch::stop() {
  stopped_ = true;
  timer_.cancel();
}

void CoordinatorSearch::attempt_next() {
  if (stopped_) {
    return;
  }
  const ReconnectPlan::Attempt attempt = plan_->next(monotonic_now());
  timer_.expires_after(attempt.delay);
  timer_.async_wait([this, endpoint = attempt.endpoint](const error_code& error) {
    if (!error && !stopped_) {
      dial(endpoint);
    }
  });
}

void CoordinatorSearch::dial(std::size_t endpoint) {
  boost::asio::post(dialer_, [this, endpoint, hello = introduce_()]() mutable {
    // Shared with a handler that the io_context may copy.
    auto answer = std::make_shared<Result<Answer>>(ask_for_admission(
        endpoints_[endpoint], token_, std::move(hello), monotonic_now() + kAttemptTimeout));
    boost::asio::post(io_, [this, endpoint, answer] {
      if (stopped_) {
        return;
      }
      if (answer->ok()) {
        on_answer_(endpoint, std::move(*answer).value());
      } else {
        attempt_next();
      }
    });
  });
}

}  // namespace mayfly::elastic
