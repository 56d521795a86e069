#include "engine/run/checkpoint_writer.hpp"

#include <fmt/format.h>
#include <pthread.h>

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

void CheckpointWriter::write_later(const nn::ModelState& state) {
  Pending pending = encode(state);
  {
    const std::lock_guard lock(mutex_);
    pending_ = std::move(pending);
  }
  changed_.notify_all();
}

bool CheckpointWriter::write_now(const nn::ModelState& state) {
  return write(encode(state));
}

CheckpointWriter::Pending CheckpointWriter::encode(const nn::ModelState& state) const {
  return {nn::encode_checkpoint(job_.model, state, job_.config.seed, job_.fingerprint),
          state.committed};
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

Result<void> CheckpointWriter::wait_until_home(Duration patience,
                                               const std::function<bool()>& is_over) {
  return uploader_ == nullptr ? Result<void>() : uploader_->wait(patience, is_over);
}

bool CheckpointWriter::write(Pending pending) {
  const std::lock_guard lock(write_mutex_);
  if (last_written_ == pending.committed) {
    return true;
  }
  const Result<std::string> written =
      save_checkpoint(folder_, pending.files, pending.committed, job_.config.keep_checkpoints);
  CheckpointRecord record{value(pending.committed), written.ok(),
                          written.ok() ? written.value() : written.error().detail};
  if (written.ok()) {
    last_written_ = pending.committed;
    failures_.is_over();
  } else if (failures_.is_news(record.text)) {
    log::warning(record.text);
  }
  listener_(record);
  if (uploader_ != nullptr) {
    uploader_->upload(pending.committed, std::move(pending.files));
  }
  return written.ok();
}

}  // namespace mayfly::engine
