// The transfer of a data set from the coordinator to a worker. Whole jobs are tested in
// tests/integration/engine/data_from_test.py.

#include "engine/transfers/data_transfer.hpp"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "elastic/net/frame.hpp"
#include "engine/job/job.hpp"
#include "engine/transfers/checkpoint_receiver.hpp"
#include "engine/transfers/checkpoint_transfer.hpp"
#include "tests/unit/engine/temporary_folder.hpp"

namespace mayfly::engine {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

constexpr std::size_t kLarge = (3U << 20) + 17;

/// A folder with the files of an image data set (without images), and a worker's folder.
class DataTransferTest : public ::testing::Test {
 protected:
  DataTransferTest() {
    write("train/a/1.jpg", std::string(kLarge, 'x'));
    write("train/b/empty.jpg", "");
    write("train/b/2.jpg", "second");
    write("test/a/3.jpg", "third");
    write("notes.txt", "no part of the data set");
    fs::create_directories(target());
  }
  void write(const std::string& name, const std::string& content) {
    const fs::path path = fs::path(source()) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  [[nodiscard]] std::string source() const { return folder_ / "source"; }
  [[nodiscard]] std::string target() const { return folder_ / "target"; }
  [[nodiscard]] std::string received(const std::string& name) const {
    return read_text_file(target() + "/" + name, 16U << 20).value();
  }

  /// The worker's end of a connection on which `sender` was asked for its data.
  static UniqueFd ask(DataSender& sender) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    sender.take(UniqueFd(ends[0]), "a worker");
    return UniqueFd(ends[1]);
  }
  static TransferAnswer answer_on(const UniqueFd& socket) {
    return decode_transfer_answer(receive_frame(socket.get()).value()).value();
  }
  /// Receives the answer that the data set follows, and then its head.
  static DataHead head_on(const UniqueFd& socket) {
    EXPECT_EQ(answer_on(socket).verdict, TransferAnswer::Verdict::kTransfer);
    return receive_data_head(socket.get()).value();
  }
  /// Receives data, and breaks the connection after this number of bytes.
  static Result<void> receive_until(DataSender& sender, IncomingData& incoming,
                                    std::uint64_t bytes) {
    const UniqueFd socket = ask(sender);
    const DataHead head = head_on(socket);
    return incoming.receive(socket.get(), head, [&](std::uint64_t so_far) {
      if (so_far >= bytes) {
        ::shutdown(socket.get(), SHUT_RDWR);
      }
    });
  }

  test_support::TemporaryFolder folder_;
  const Digest digest_{1, 2};
};

constexpr std::uint64_t kAll = ~std::uint64_t{0};

TEST_F(DataTransferTest, BringsWhatTheDataSetConsistsOf) {
  DataSender sender(source(), digest_);
  IncomingData incoming(target());
  const UniqueFd socket = ask(sender);
  const DataHead head = head_on(socket);
  EXPECT_EQ(head, (DataHead{digest_, "", 4, kLarge + 11, head.listing, head.times}));
  std::uint64_t last = 0;
  ASSERT_TRUE(incoming.receive(socket.get(), head, [&](std::uint64_t n) { last = n; }).ok());
  EXPECT_EQ(last, head.bytes);
  EXPECT_EQ(received("train/a/1.jpg"), std::string(kLarge, 'x'));
  EXPECT_EQ(received("train/b/2.jpg"), "second");
  EXPECT_EQ(received("train/b/empty.jpg"), "");
  EXPECT_EQ(received("test/a/3.jpg"), "third");
  EXPECT_FALSE(fs::exists(target() + "/notes.txt"));
}

TEST_F(DataTransferTest, GoesOnWhereAConnectionBroke) {
  DataSender sender(source(), digest_);
  IncomingData incoming(target());
  for (const std::uint64_t at :
       {std::uint64_t{3}, std::uint64_t{1} << 20, std::uint64_t{2} << 20}) {
    const Result<void> broken = receive_until(sender, incoming, at);
    ASSERT_FALSE(broken.ok());
    EXPECT_EQ(broken.error().code, Errc::kPeerLost) << broken.error().detail;
  }
  ASSERT_TRUE(receive_until(sender, incoming, kAll).ok());
  EXPECT_EQ(received("train/a/1.jpg"), std::string(kLarge, 'x'));
  EXPECT_EQ(received("train/b/2.jpg"), "second");
}

// Reading a large file may take longer than a worker waits for the next byte.
TEST_F(DataTransferTest, WhileItReadsWhatTheWorkerHasTheCoordinatorIsHeardOf) {
  DataSender sender(source(), digest_);
  const UniqueFd socket = ask(sender);
  (void)head_on(socket);
  WireWriter position;
  position.put(std::uint64_t{1});
  position.put(std::uint64_t{2} << 20);
  ASSERT_TRUE(send_frame(socket.get(), position.take()).ok());
  int empty_frames = 0;
  Bytes heard = receive_frame(socket.get()).value();
  for (; heard.empty(); heard = receive_frame(socket.get()).value()) {
    ++empty_frames;
  }
  EXPECT_GE(empty_frames, 2);
  EXPECT_EQ(WireReader(heard).get_string(100), "train/a/1.jpg");
}

TEST_F(DataTransferTest, ATarIsOneFile) {
  std::ofstream(folder_ / "images.tar") << "a tar";
  DataSender sender(folder_ / "images.tar", digest_);
  const UniqueFd socket = ask(sender);
  const DataHead head = head_on(socket);
  EXPECT_EQ(head, (DataHead{digest_, "images.tar", 1, 5, head.listing, head.times}));
}

// A network may change a byte in terabytes. The worker must not discard all received files for it.
TEST_F(DataTransferTest, AFileThatIsNotWhatItWasIsFoundByItsHashAndFetchedOnceMore) {
  DataSender sender(source(), digest_);
  IncomingData incoming(target());
  const auto expect_another_hash = [&](Errc code) {
    const Result<void> received = receive_until(sender, incoming, kAll);
    ASSERT_FALSE(received.ok());
    EXPECT_EQ(received.error().code, code);
    EXPECT_THAT(received.error().detail, HasSubstr("train/a/1.jpg arrived damaged"));
  };
  ASSERT_FALSE(receive_until(sender, incoming, 1U << 20).ok());
  write("train/a/1.jpg", std::string(kLarge, 'y'));
  expect_another_hash(Errc::kPeerLost);
  ASSERT_FALSE(receive_until(sender, incoming, 1U << 20).ok());
  EXPECT_LT(fs::file_size(target() + "/train/a/1.jpg"), kLarge) << "from the beginning";
  write("train/a/1.jpg", std::string(kLarge, 'z'));
  expect_another_hash(Errc::kCorrupt);

  IncomingData again(folder_ / "again");
  ASSERT_FALSE(receive_until(sender, again, 1U << 20).ok());
  write("train/a/1.jpg", std::string(kLarge, 'y'));
  ASSERT_FALSE(receive_until(sender, again, kAll).ok());
  ASSERT_TRUE(receive_until(sender, again, kAll).ok());
  EXPECT_EQ(read_text_file(folder_ / "again/train/a/1.jpg", 16U << 20).value(),
            std::string(kLarge, 'y'));
}

TEST_F(DataTransferTest, AnotherDataSetIsNotTakenUpInTheMiddle) {
  DataSender sender(source(), digest_);
  IncomingData incoming(target());
  ASSERT_FALSE(receive_until(sender, incoming, 1U << 20).ok());
  DataSender other(source(), {3, 4});
  EXPECT_EQ(receive_until(other, incoming, kAll).error().code, Errc::kCorrupt);
}

// The digest covers only the training part, but a worker also evaluates the test part.
TEST_F(DataTransferTest, TheHeadTellsAnotherTestPart) {
  const auto head = [this] {
    DataSender sender(source(), digest_);
    return head_on(ask(sender));
  };
  const DataHead first = head();
  EXPECT_EQ(head(), first);
  write("test/a/3.jpg", "other");
  fs::last_write_time(source() + "/test/a/3.jpg", fs::file_time_type::clock::now() + seconds(2));
  const DataHead other = head();
  EXPECT_EQ(other.listing, first.listing);
  EXPECT_NE(other.times, first.times);
  fs::rename(source() + "/test/a/3.jpg", source() + "/test/a/4.jpg");
  EXPECT_NE(head().listing, first.listing);
}

TEST_F(DataTransferTest, ACopyOfOtherTimesGoesOnAndOneOfOtherNamesDoesNot) {
  DataSender sender(source(), digest_);
  IncomingData incoming(target());
  ASSERT_FALSE(receive_until(sender, incoming, 1U << 20).ok());
  fs::last_write_time(source() + "/train/b/2.jpg", fs::file_time_type::clock::now() + seconds(2));
  DataSender touched(source(), digest_);
  EXPECT_EQ(receive_until(touched, incoming, 2U << 20).error().code, Errc::kPeerLost);
  fs::rename(source() + "/test/a/3.jpg", source() + "/test/a/4.jpg");
  DataSender renamed(source(), digest_);
  EXPECT_EQ(receive_until(renamed, incoming, kAll).error().code, Errc::kCorrupt);
}

TEST_F(DataTransferTest, SomeAreServedAtOnceAndTheOthersComeAgain) {
  DataSender sender(source(), digest_);
  std::vector<UniqueFd> served;
  for (int i = 0; i < 8; ++i) {
    served.push_back(ask(sender));
    (void)head_on(served.back());
  }
  EXPECT_EQ(answer_on(ask(sender)).verdict, TransferAnswer::Verdict::kNothing);
}

TEST_F(DataTransferTest, WhoHasNoneSaysSo) {
  DataSender sender(folder_ / "nothing", digest_);
  const TransferAnswer answer = answer_on(ask(sender));
  EXPECT_EQ(answer.verdict, TransferAnswer::Verdict::kRefused);
  EXPECT_THAT(answer.text, HasSubstr("no data set"));
}

// A coordinator without the job's device gets the facts from a worker, which needs the data set.
TEST_F(DataTransferTest, IsSentWhereItIsHereAlsoIfTheJobLacksFacts) {
  DataSender sender(source(), digest_);
  Job job;
  CheckpointReceiver::Hooks hooks;
  hooks.on_facts = [](const JobFacts&) { return Result<void>(); };
  hooks.on_data = [&sender](UniqueFd socket, std::string host) {
    sender.take(std::move(socket), std::move(host));
  };
  CheckpointReceiver receiver(job, StartingPoint{}, std::nullopt, "", hooks);
  const auto ask_receiver = [&receiver] {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    receiver.take(UniqueFd(ends[0]), "a worker");
    UniqueFd own(ends[1]);
    EXPECT_TRUE(elastic::receive_message(own.get(), monotonic_now() + seconds(60)).ok());
    TransferRequest request;
    request.kind = TransferRequest::Kind::kData;
    EXPECT_TRUE(send_frame(own.get(), encode(request)).ok());
    return own;
  };
  job.config.data = folder_ / "nothing";
  const TransferAnswer refused = answer_on(ask_receiver());
  EXPECT_EQ(refused.verdict, TransferAnswer::Verdict::kRefused);
  EXPECT_THAT(refused.text, HasSubstr("no data set to send"));
  job.config.data = source();
  EXPECT_EQ(head_on(ask_receiver()).files, 4U);
}

TEST(DataTransfer, NoNameLeadsOutOfItsFolder) {
  EXPECT_TRUE(is_inside("train/a/1.jpg"));
  for (const char* name : {"", "/etc/passwd", "..", "a/../../b", "a//../b", "./a", "a/"}) {
    EXPECT_FALSE(is_inside(name)) << name;
  }
  EXPECT_FALSE(is_inside(std::string("a\0b", 3)));
  EXPECT_FALSE(decode_data_head(encode(DataHead{{}, "../x", 1, 1})).ok());
}

}  // namespace
}  // namespace mayfly::engine
