#include "cloud_hooks/notice/notice_watcher.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/thread_priority.hpp"
#include "base/time.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/http/http_client.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

constexpr const char* kLinkLocal = "http://169.254.169.254";
constexpr std::size_t kAnswerBytesMax = 256 * 1024;
constexpr Duration kAnswerMax = seconds(5);

/// The common part of the three metadata servers.
class MetadataSource : public NoticeSource {
 public:
  MetadataSource(std::string endpoint, HttpSender& sender,
                 std::function<std::int64_t()> unix_seconds)
      : endpoint_(std::move(endpoint)), sender_(sender), unix_seconds_(std::move(unix_seconds)) {}

  Duration pause() const override { return seconds(1); }

 protected:
  Result<HttpResponse> ask(const std::string& method, const std::string& path, HttpHeaders headers,
                           Duration answer_max = kAnswerMax, std::string body = "") {
    TRY_ASSIGN(const Url url, parse_url(endpoint_ + path));
    HttpLimits limits;
    limits.connect_max = seconds(2);
    limits.answer_max = answer_max;
    limits.body_bytes_max = kAnswerBytesMax;
    limits.direct = true;
    limits.keep_open = keeps_connection_;
    return sender_.send({method, url, std::move(headers), std::move(body)}, limits);
  }

  [[nodiscard]] std::int64_t unix_seconds() const { return unix_seconds_(); }

  [[nodiscard]] static Error unexpected(const HttpResponse& answer) {
    return Error{Errc::kRefused, fmt::format("HTTP {}", answer.status)};
  }

  /// The server's time from its answer, otherwise the local time.
  [[nodiscard]] std::int64_t now_of(const HttpResponse& answer) const {
    return answer.date().value_or(unix_seconds_());
  }

  bool keeps_connection_ = false;  // all requests use one connection

 private:
  const std::string endpoint_;
  HttpSender& sender_;
  const std::function<std::int64_t()> unix_seconds_;
};

/// A hanging GET: the server answers when the value changes, and its ETag makes sure that no change
/// between two requests is missed.
class GceSource final : public MetadataSource {
 public:
  using MetadataSource::MetadataSource;

  Result<Announced> look(bool may_wait) override {
    constexpr int kWaitSeconds = 60;
    std::string path = "/computeMetadata/v1/instance/preempted";
    const bool waits = may_wait && !etag_.empty();
    if (waits) {
      path += fmt::format("?wait_for_change=true&timeout_sec={}&last_etag={}", kWaitSeconds,
                          percent_encode(etag_));
    }
    TRY_ASSIGN(HttpResponse answer, ask("GET", path, {{"Metadata-Flavor", "Google"}},
                                        waits ? Duration(seconds(kWaitSeconds + 10)) : kAnswerMax));
    if (answer.status != 200) {
      return unexpected(answer);
    }
    etag_ = std::string(answer.header("ETag").value_or(""));
    return parse_gce_preempted(answer.body);
  }

  /// The server itself waits for a change; this waiting time is for a server that does not.
  Duration pause() const override { return milliseconds(200); }
  std::string name() const override { return "Compute Engine's metadata server"; }

 private:
  std::string etag_;
};

/// EC2 has no request that waits for a change, so it is polled often over one connection. Each poll
/// sends two packets at most, of the 1024 per second that a network interface may send to
/// link-local services. The recommendation is less urgent and is read once a second.
class Ec2Source final : public MetadataSource {
 public:
  Ec2Source(bool rebalance, std::string endpoint, HttpSender& sender,
            std::function<std::int64_t()> unix_seconds)
      : MetadataSource(std::move(endpoint), sender, std::move(unix_seconds)),
        rebalance_(rebalance) {
    keeps_connection_ = true;
  }

  Result<Announced> look(bool) override {
    Result<Announced> announced = read("spot/instance-action");
    if (announced.ok() && !announced.value() && rebalance_) {
      announced = recommendation();
    }
    slow_looks_ = announced.ok() ? std::max(slow_looks_ - 1, 0) : kSlowLooks;
    return announced;
  }

  Duration pause() const override { return slow_looks_ > 0 ? kSlowPause : kPause; }
  std::string name() const override { return "EC2's metadata server"; }

 private:
  /// Reads one kind of notice; status 404 means that there is none.
  Result<Announced> read(const std::string& what) {
    for (int attempt = 0;; ++attempt) {
      if (token_.empty()) {
        TRY(renew_token());
      }
      Result<HttpResponse> answer =
          ask("GET", "/latest/meta-data/" + what, {{"X-aws-ec2-metadata-token", token_}});
      if (!answer.ok()) {
        token_.clear();  // the text may not have been a token
        return std::move(answer).error();
      }
      if (answer.value().status == 401 && attempt == 0) {
        token_.clear();  // it has expired
        continue;
      }
      if (answer.value().status == 404) {
        return Announced();
      }
      if (answer.value().status != 200) {
        return unexpected(answer.value());
      }
      return what.starts_with("spot")
                 ? parse_ec2_action(answer.value().body, now_of(answer.value()))
                 : parse_ec2_rebalance(answer.value().body);
    }
  }

  Result<void> renew_token() {
    TRY_ASSIGN(HttpResponse answer, ask("PUT", "/latest/api/token",
                                        {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}}));
    if (answer.status != 200 || answer.body.empty()) {
      return unexpected(answer);
    }
    token_ = std::move(answer.body);
    return {};
  }

  Result<Announced> recommendation() {
    if (const std::int64_t now = unix_seconds(); now != recommended_at_) {
      TRY_ASSIGN(Announced announced, read("events/recommendations/rebalance"));
      recommended_at_ = now;
      recommended_ = std::move(announced);
    }
    return recommended_;
  }

  static constexpr Duration kPause = milliseconds(25);
  static constexpr Duration kSlowPause = seconds(1);
  static constexpr int kSlowLooks = 600;  // ten minutes

  const bool rebalance_;
  std::string token_;
  int slow_looks_ = 0;  // after a failure: the server may throttle frequent requests
  Announced recommended_;
  std::optional<std::int64_t> recommended_at_;  // by unix_seconds()
};

class AzureSource final : public MetadataSource {
 public:
  using MetadataSource::MetadataSource;

  Result<Announced> look(bool may_wait) override {
    if (machine_.empty()) {
      TRY_ASSIGN(HttpResponse answer,
                 ask("GET", "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
                     {{"Metadata", "true"}}));
      if (answer.status != 200 || answer.body.empty()) {
        return unexpected(answer);
      }
      machine_ = std::move(answer.body);
    }
    // The first request switches the service on for this machine, which may take two minutes.
    const Duration answer_max = may_wait ? Duration(seconds(125)) : kAnswerMax;
    TRY_ASSIGN(HttpResponse answer, ask("GET", kEventsPath, {{"Metadata", "true"}}, answer_max));
    if (answer.status != 200) {
      return unexpected(answer);
    }
    return parse_azure_events(answer.body, machine_, now_of(answer));
  }

  /// Starts the event now rather than at its announced time, because the time until then is billed.
  Result<void> acknowledge(const Notice& notice) override {
    if (notice.event_id.empty()) {
      return {};
    }
    boost::json::object event;
    event["EventId"] = notice.event_id;
    boost::json::object body;
    body["StartRequests"] = boost::json::array{event};
    TRY_ASSIGN(
        HttpResponse answer,
        ask("POST", kEventsPath, {{"Metadata", "true"}, {"Content-Type", "application/json"}},
            kAnswerMax, boost::json::serialize(body)));
    return answer.status == 200 ? Result<void>() : unexpected(answer);
  }

  std::string name() const override { return "Azure's metadata server"; }

 private:
  static constexpr const char* kEventsPath = "/metadata/scheduledevents?api-version=2020-07-01";

  std::string machine_;  // events name all machines of a set
};

/// The seconds in a file count from the time at which it was written.
class FileSource final : public NoticeSource {
 public:
  FileSource(std::string path, std::function<std::int64_t()> unix_seconds)
      : path_(std::move(path)), unix_seconds_(std::move(unix_seconds)) {}

  Result<Announced> look(bool) override {
    constexpr std::size_t kBytesMax = 4096;
    const Result<std::string> text = read_text_file(path_, kBytesMax);
    if (!text.ok()) {
      return text.error().code == Errc::kNotFound ? Result<Announced>(Announced())
                                                  : Result<Announced>(text.error());
    }
    Result<Announced> announced = parse_notice_file(text.value());
    struct stat about {};
    if (announced.ok() && announced.value() && stat(path_.c_str(), &about) == 0) {
      Duration& left = announced.value()->time_left;
      left = std::max(left - seconds(unix_seconds_() - about.st_mtime), Duration(0));
    }
    return announced;
  }

  Duration pause() const override { return milliseconds(50); }
  std::string name() const override { return path_; }

 private:
  const std::string path_;
  const std::function<std::int64_t()> unix_seconds_;
};

}  // namespace

std::unique_ptr<NoticeSource> make_notice_source(
    const NoticeSetting& setting, HttpSender& sender, std::function<std::int64_t()> unix_seconds,
    const std::function<std::string(const std::string&)>& get) {
  using Kind = NoticeSetting::Kind;
  const auto place_or = [&](std::string other) {
    return before_path(!setting.place.empty() ? setting.place
                       : !other.empty()       ? other
                                              : kLinkLocal);
  };
  const std::string gce_host = get("GCE_METADATA_HOST");
  switch (setting.kind) {
    case Kind::kNone: return nullptr;
    case Kind::kGce:
      return std::make_unique<GceSource>(place_or(gce_host.empty() ? "" : "http://" + gce_host),
                                         sender, std::move(unix_seconds));
    case Kind::kEc2:
    case Kind::kEc2Rebalance:
      return std::make_unique<Ec2Source>(setting.kind == Kind::kEc2Rebalance,
                                         place_or(get("AWS_EC2_METADATA_SERVICE_ENDPOINT")), sender,
                                         std::move(unix_seconds));
    case Kind::kAzure:
      return std::make_unique<AzureSource>(place_or(""), sender, std::move(unix_seconds));
    case Kind::kFile: return std::make_unique<FileSource>(setting.place, std::move(unix_seconds));
  }
  UNREACHABLE("all kinds are listed");
}

class NoticeWatcher::Impl {
 public:
  Impl(const NoticeSetting& setting, std::function<void(const std::string&)> on_leave)
      : on_leave_(std::move(on_leave)),
        source_(make_notice_source(
            setting, client_, [] { return static_cast<std::int64_t>(wall_clock_seconds()); },
            environment_variable)) {
    if (source_ != nullptr) {
      thread_ = std::thread([this] { run(); });
    }
  }

  void has_left() {
    if (!has_called_.exchange(false)) {
      return;
    }
    thread_.join();  // it ends after on_leave; from here on this thread uses its members
    if (Result<void> done = source_->acknowledge(last_); !done.ok()) {
      log::warning(source_->name() + " was not notified of the departure: " + done.error().detail);
    } else if (!last_.event_id.empty()) {
      log::info(source_->name() + " was notified of the departure");
    }
  }

  ~Impl() {
    client_.abort();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  void run() {
    become_low_latency_thread("notices");
    Duration wait{};
    while (client_.pause(wait)) {
      wait = std::max(look(), Duration(0));
      if (const std::optional<Instant> leave_at = watch_.leave_at()) {
        if (monotonic_now() >= *leave_at) {
          has_called_ = true;
          on_leave_(watch_.reason());
          return;
        }
        wait = std::min(wait, *leave_at - monotonic_now());
      }
    }
  }

  /// Reads the source. Returns how long to wait until the next time.
  Duration look() {
    constexpr Duration kAfterFailure = seconds(5);
    // While there is a notice, the thread must act at its time, so a source must not block.
    const Result<Announced> announced = source_->look(!watch_.leave_at().has_value());
    if (announced.ok()) {
      if (std::exchange(failing_, false)) {
        log::info("notices can be read again from " + source_->name());
      }
      if (const std::optional<std::string> news =
              watch_.update(monotonic_now(), announced.value())) {
        log::warning(*news);
      }
      last_ = announced.value().value_or(last_);
      return source_->pause();
    }
    if (announced.error().code != Errc::kAborted && !std::exchange(failing_, true)) {
      log::warning("no notices from " + source_->name() + ": " + announced.error().detail);
    }
    return kAfterFailure;
  }

  const std::function<void(const std::string&)> on_leave_;
  HttpClient client_;
  const std::unique_ptr<NoticeSource> source_;
  NoticeWatch watch_;     // of the thread
  bool failing_ = false;  // of the thread
  Notice last_;           // of the thread until on_leave was called
  std::atomic<bool> has_called_ = false;
  std::thread thread_;  // last: it uses the rest
};

NoticeWatcher::NoticeWatcher(const NoticeSetting& setting,
                             std::function<void(const std::string&)> on_leave)
    : impl_(std::make_unique<Impl>(setting, std::move(on_leave))) {}

NoticeWatcher::~NoticeWatcher() = default;

void NoticeWatcher::has_left() {
  impl_->has_left();
}

}  // namespace mayfly::cloud_hooks
