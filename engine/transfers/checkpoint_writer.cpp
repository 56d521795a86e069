#include "engine/transfers/checkpoint_writer.hpp"

#include <pthread.h>

#include <utility>

#include "base/log.hpp"
#include "engine/run/checkpoint_store.hpp"

namespace mayfly::engine {

CheckpointWriter::CheckpointWriter(const Job& job, std::string folder, Listener listener,
                                   CheckpointUploader* uploader)
    : job_(job),
      folder_(std::move(folder)),
      listener_(std::move(listener)),
      uploader_(uploader),
      thread_([this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::write_later(Step committed, nn::CheckpointFiles files) {
  {
    const std::lock_guard lock(mutex_);
    pending_ = Pending{std::move(files), committed, ++given_};
  }
  changed_.notify_all();
}

void CheckpointWriter::set_urgent(bool is_urgent) {
  if (uploader_ != nullptr) {
    uploader_->set_urgent(is_urgent);
  }
}

bool CheckpointWriter::write_now(Step committed, nn::CheckpointFiles files) {
  std::uint64_t order = 0;
  {
    const std::lock_guard lock(mutex_);
    order = ++given_;
  }
  return write({std::move(files), committed, order});
}

void CheckpointWriter::run() {
  pthread_setname_np(pthread_self(), "checkpoints");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || pending_.has_value(); });
    if (!pending_.has_value()) {
      return;
    }
    Pending pending = *std::exchange(pending_, std::nullopt);
    lock.unlock();
    write(std::move(pending));
    lock.lock();
  }
}

Result<void> CheckpointWriter::wait_until_uploaded(Duration patience,
                                                   const std::function<bool()>& is_over) {
  return uploader_ == nullptr ? Result<void>() : uploader_->wait(patience, is_over);
}

bool CheckpointWriter::write(Pending pending) {
  const std::lock_guard lock(write_mutex_);
  // A job with parameter servers may fall back and reach this step again in another state.
  const auto named = pending.files.find(nn::kManifestFile);  // has the hashes of the other files
  const Digest manifest = named == pending.files.end() ? Digest() : digest_of(named->second);
  const bool is_there = last_written_ == pending.committed && last_manifest_ == manifest;
  if (pending.order < order_written_ || is_there) {
    return true;
  }
  order_written_ = pending.order;
  const Result<std::string> written =
      save_checkpoint(folder_, pending.files, pending.committed, job_.config.keep_checkpoints);
  CheckpointRecord record{value(pending.committed), written.ok(),
                          written.ok() ? written.value() : written.error().detail};
  if (written.ok()) {
    last_written_ = pending.committed;
    last_manifest_ = manifest;
    failures_.is_over();
  } else if (failures_.is_new(record.text)) {
    log::warning(record.text);
  }
  listener_(record);
  if (uploader_ != nullptr) {
    uploader_->upload(pending.committed, std::move(pending.files));
  }
  return written.ok();
}

}  // namespace mayfly::engine
