#include "elastic/net/durable_view_log.hpp"

#include <utility>

#include "base/file.hpp"
#include "base/log.hpp"

namespace mayfly::elastic {
namespace {

Result<LogContents> replay(const std::string& path, ByteSpan bytes) {
  Result<LogContents> contents = ViewLog::replay(bytes);
  if (!contents.ok()) {
    return Error{contents.error().code, path + ": " + contents.error().detail};
  }
  return contents;
}

}  // namespace

Result<LogContents> peek_view_log(const std::string& path) {
  const Result<Bytes> bytes = read_file(path, ViewLogFile::kBytesMax);
  return bytes.ok() ? replay(path, bytes.value()) : Result<LogContents>(bytes.error());
}

Result<std::unique_ptr<DurableViewLog>> DurableViewLog::open(const std::string& path) {
  Result<std::unique_ptr<ViewLogFile>> file = ViewLogFile::open(path);
  if (!file.ok()) {
    return std::move(file).error();
  }
  Result<LogContents> contents = replay(path, file.value()->found());
  if (!contents.ok()) {
    return std::move(contents).error();
  }
  if (contents.value().dropped_bytes > 0) {
    log::warning(path + ": the last " + std::to_string(contents.value().dropped_bytes) +
                 " bytes are torn and dropped");
  }
  return std::unique_ptr<DurableViewLog>(
      new DurableViewLog(std::move(file).value(), std::move(contents).value()));
}

Result<void> DurableViewLog::restart(const Bytes& content) {
  log_ = ViewLog(content.size());
  return file_->rewrite(content);
}

bool DurableViewLog::append(const LogRecord& record, bool durable) {
  if (!file_->append(log_.add(record), durable)) {
    log_ = ViewLog(file_->bytes());  // a record knows its place in the file
    return false;
  }
  if (log_.wants_compaction()) {
    shorten();
  }
  return true;
}

/// What the file holds decides, not what we remember: a record that did not fit is in neither.
void DurableViewLog::shorten() {
  const Result<LogContents> contents = peek_view_log(file_->path());
  if (!contents.ok()) {
    log::warning("the view log is not shortened: " + contents.error().detail);
    return;
  }
  if (Result<void> done = restart(ViewLog::compact(contents.value())); !done.ok()) {
    log::warning("the view log is not shortened: " + done.error().detail);
  }
}

}  // namespace mayfly::elastic
