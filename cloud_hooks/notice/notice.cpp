#include "cloud_hooks/notice/notice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/parse.hpp"
#include "base/try_assign.hpp"
#include "cloud_hooks/http/http_sender.hpp"
#include "cloud_hooks/http/json_fields.hpp"
#include "cloud_hooks/http/message.hpp"

namespace mayfly::cloud_hooks {
namespace {

namespace json = boost::json;

constexpr std::int64_t kFarSeconds = 366 * 86400;

Error not_of_the_form(const char* what) {
  return Error{Errc::kCorrupt, fmt::format("not of the form of {}", what)};
}

Result<json::object> object_in(std::string_view text, const char* what) {
  return parse_object(text, not_of_the_form(what).detail);
}

Duration time_until(std::int64_t then, std::int64_t now) {
  return seconds(std::clamp<std::int64_t>(then - now, 0, kFarSeconds));
}

/// The machines that an event concerns.
std::vector<std::string> resources_of(const json::object& event) {
  std::vector<std::string> names;
  const json::value* const resources = event.if_contains("Resources");
  if (resources != nullptr && resources->is_array()) {
    for (const json::value& resource : resources->get_array()) {
      names.push_back(resource.is_string() ? std::string(resource.get_string()) : "");
    }
  }
  return names;
}

bool ends_work(const json::object& event) {
  const std::string type = text_of(event, "EventType");
  const std::string status = text_of(event, "EventStatus");
  return status != "Completed" && status != "Canceled" &&
         (type == "Preempt" || type == "Terminate" || type == "Reboot" || type == "Redeploy");
}

}  // namespace

Result<Announced> parse_gce_preempted(std::string_view body) {
  const std::string_view word = trimmed(body);
  if (word != "TRUE" && word != "FALSE") {
    return not_of_the_form("instance/preempted");
  }
  return word == "TRUE" ? Announced(Notice{seconds(30), "Compute Engine preempts this machine"})
                        : Announced();
}

Result<Announced> parse_ec2_action(std::string_view text, std::int64_t now) {
  constexpr const char* kWhat = "spot/instance-action";
  TRY_ASSIGN(const json::object object, object_in(text, kWhat));
  const std::string action = text_of(object, "action");
  const std::optional<std::int64_t> time = parse_iso_time(text_of(object, "time"));
  if (!time || (action != "terminate" && action != "stop" && action != "hibernate")) {
    return not_of_the_form(kWhat);
  }
  return Announced(Notice{time_until(*time, now), "EC2 will " + action + " this instance"});
}

Result<Announced> parse_ec2_rebalance(std::string_view text) {
  constexpr const char* kWhat = "events/recommendations/rebalance";
  TRY_ASSIGN(const json::object object, object_in(text, kWhat));
  if (!parse_iso_time(text_of(object, "noticeTime"))) {
    return not_of_the_form(kWhat);
  }
  return Announced(Notice{{}, "EC2 recommends to replace this instance"});
}

Result<Announced> parse_azure_events(std::string_view text, std::string_view name,
                                     std::int64_t now) {
  constexpr const char* kWhat = "scheduledevents";
  const Result<json::object> object = object_in(text, kWhat);
  if (!object.ok()) {
    return object.error();
  }
  const json::value* const events = object.value().if_contains("Events");
  if (events == nullptr || !events->is_array()) {
    return not_of_the_form(kWhat);
  }
  Announced first;
  for (const json::value& value : events->get_array()) {
    if (!value.is_object()) {
      return not_of_the_form(kWhat);
    }
    const json::object& event = value.get_object();
    const std::vector<std::string> machines = resources_of(event);
    if (std::find(machines.begin(), machines.end(), name) == machines.end() || !ends_work(event)) {
      continue;
    }
    const std::string when = text_of(event, "NotBefore");  // empty: it has begun
    const std::optional<std::int64_t> time =
        when.empty() ? std::optional(now) : parse_http_date(when);
    if (!time) {
      return not_of_the_form(kWhat);
    }
    Notice notice{time_until(*time, now),
                  "Azure has scheduled: " + readable(text_of(event, "EventType")),
                  machines.size() == 1 ? text_of(event, "EventId") : ""};
    if (!first || notice.time_left < first->time_left) {
      first = std::move(notice);
    }
  }
  return first;
}

Result<Announced> parse_notice_file(std::string_view text) {
  const std::string_view line = trimmed(text);
  std::int64_t left = 0;
  if (line.empty()) {
    return Announced(Notice{{}, "announced by the notice file"});
  }
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), left);
  const bool ends_well = end == line.data() + line.size() || *end == ' ' || *end == '\n';
  if (error != std::errc() || left < 0 || !ends_well) {
    return not_of_the_form("a notice: SECONDS [REASON]");
  }
  const std::string reason =
      readable(trimmed(line.substr(static_cast<std::size_t>(end - line.data()))));
  return Announced(
      Notice{time_until(left, 0), reason.empty() ? "announced by the notice file" : reason});
}

Result<NoticeSetting> parse_notice_setting(std::string_view text) {
  using Kind = NoticeSetting::Kind;
  if (text.empty() || text == "none") {
    return NoticeSetting{};
  }
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view word = text.substr(0, colon);
  const std::string place(text.substr(std::min(colon + 1, text.size())));
  if (word == "file") {
    return place.empty() ? Result<NoticeSetting>(
                               Error{Errc::kInvalidInput, "notice file: needs a path, file:PATH"})
                         : Result<NoticeSetting>(NoticeSetting{Kind::kFile, place});
  }
  for (const auto& [name, kind] : {std::pair{"gce", Kind::kGce},
                                   {"ec2", Kind::kEc2},
                                   {"ec2-rebalance", Kind::kEc2Rebalance},
                                   {"azure", Kind::kAzure}}) {
    if (word != name) {
      continue;
    }
    if (colon < text.size() && !parse_url(place).ok()) {
      return Error{Errc::kInvalidInput,
                   fmt::format("notice {}: is not followed by an address http://HOST:PORT", name)};
    }
    return NoticeSetting{kind, place};
  }
  return Error{Errc::kInvalidInput,
               fmt::format("notice '{}' is not known (known: none, gce, ec2, ec2-rebalance, azure, "
                           "file:PATH)",
                           readable(text))};
}

std::optional<std::string> NoticeWatch::update(Instant now, const Announced& announced) {
  if (!announced) {
    const bool withdrawn = leave_at_.has_value();
    leave_at_.reset();
    return withdrawn ? std::optional("the notice was withdrawn: " + reason_) : std::nullopt;
  }
  const bool is_new = !leave_at_.has_value() || reason_ != announced->detail;
  leave_at_ = now + std::max(announced->time_left - kLeaveBefore, Duration(0));
  reason_ = announced->detail;
  return is_new ? std::optional(fmt::format("notice: {}, in {:.0f} s", reason_,
                                            to_seconds(announced->time_left)))
                : std::nullopt;
}

}  // namespace mayfly::cloud_hooks
