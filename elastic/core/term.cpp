#include "elastic/core/term.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace mayfly::elastic {
namespace {

using Texts = std::vector<std::pair<std::string, std::string>>;

const std::string* find(const Texts& texts, const std::string& name) {
  const auto place =
      std::ranges::find_if(texts, [&name](const auto& pair) { return pair.first == name; });
  return place == texts.end() ? nullptr : &place->second;
}

std::string describe_difference(const std::string& name, const std::string* job,
                                const std::string* worker) {
  const std::string nothing = "nothing";
  return name + ": the job has " + (job != nullptr ? *job : nothing) + ", this worker has " +
         (worker != nullptr ? *worker : nothing);
}

}  // namespace

Term::Term(const CoordinatorOptions& options)
    : identity_(options.identity),
      microbatches_(options.microbatches),
      has_quorum_(options.quorum),
      fingerprint_(options.fingerprint) {
  ENSURE(identity_ != 0, "0 names no coordinator");
}

void Term::restore(const LogContents& contents) {
  ENSURE(contents.job != 0 && job_ == 0, "a coordinator goes on with one job");
  ENSURE(contents.microbatches == microbatches_, "the job is the same as before");
  job_ = contents.job;
  incarnation_ = contents.incarnation;
  fingerprint_ = contents.fingerprint;
}

void Term::start(Outbox& outbox) {
  if (job_ == 0) {
    job_ = identity_;
    outbox.append(log_record::JobStarted{job_, microbatches_, fingerprint_});
  }
  begin(next(incarnation_), outbox);
}

void Term::begin(Incarnation incarnation, Outbox& outbox) {
  ENSURE(incarnation > incarnation_, "incarnations only grow");
  incarnation_ = incarnation;
  last_id_ = MemberId{id_base(incarnation_)};
  outbox.append(log_record::IncarnationStarted{incarnation_}, true);
  if (value(incarnation_) > 1) {
    outbox.note("incarnation", std::nullopt, std::to_string(value(incarnation_)));
  }
}

bool Term::obeys_another(const Hello& hello) const {
  const bool is_of_another = hello.incarnation == incarnation_ && hello.author != identity_;
  return hello.incarnation > incarnation_ || is_of_another;
}

Welcome Term::welcome(MemberId member, bool underway) const {
  return Welcome{member, incarnation_, identity_, job_, false, has_quorum_, underway};
}

Welcome Term::welcome_back(MemberId member) const {
  return Welcome{member, incarnation_, identity_, job_, true, has_quorum_};
}

MemberId Term::new_member_id() {
  ENSURE(value(incarnation_) > 0, "ids are handed out in an incarnation that has begun");
  last_id_ = next(last_id_);
  ENSURE(incarnation_of(ViewId{value(last_id_)}) == incarnation_,
         "an incarnation has ids for all its members, and hands out no other's");
  return last_id_;
}

ViewId Term::view_id_after(const std::optional<View>& last) const {
  const ViewId id{std::max(last ? value(last->id) : 0, id_base(incarnation_)) + 1};
  ENSURE(incarnation_of(id) == incarnation_, "an incarnation has ids for all its views");
  return id;
}

std::optional<std::string> Term::difference(const Hello& hello) const {
  for (const auto& [name, expected] : fingerprint_) {
    const std::string* found = find(hello.fingerprint, name);
    if (found == nullptr || *found != expected) {
      return describe_difference(name, &expected, found);
    }
  }
  for (const auto& [name, found] : hello.fingerprint) {
    if (find(fingerprint_, name) == nullptr) {
      return describe_difference(name, nullptr, &found);
    }
  }
  return std::nullopt;
}

void Term::admit_again(const Hello& hello, Outbox& outbox) {
  ENSURE(!is_of_another_job(hello), "members do not change jobs");
  if (job_ == 0) {
    job_ = hello.job;
    outbox.append(log_record::JobStarted{job_, microbatches_, fingerprint_});
  }
  last_id_ = std::max(last_id_, hello.member);
}

}  // namespace mayfly::elastic
