#include "datasets/store_server.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/net/sockets.hpp"
#include "base/random.hpp"
#include "datasets/store_peer.hpp"
#include "datasets/store_reader.hpp"

namespace mayfly::datasets {
namespace {

constexpr StoreKey kView{.view = 3, .key = 0x1234};
constexpr std::uint64_t kStored = 200;

/// A deadline that leaves any machine far more time than an answer takes.
Instant ample() {
  return monotonic_now() + seconds(60);
}

class StoreServerTest : public testing::Test {
 protected:
  StoreServerTest() {
    std::string pattern = testing::TempDir() + "mayfly-server-XXXXXX";
    options.folder = ::mkdtemp(pattern.data());
    options.key = {5, 6};
    options.images = kStored;
    options.bytes_max = 40'000'000;
    store = ImageStore::join(options).value();
  }
  ~StoreServerTest() override {
    store.reset();
    std::filesystem::remove_all(options.folder);
  }

  static std::size_t size_of(std::uint64_t image) { return 1000 + 611 * (image % 150); }
  static Bytes content(std::uint64_t image) {
    Bytes bytes(size_of(image));
    RandomStream random(CounterRandom(image).split("image"));
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random.bits());
    }
    return bytes;
  }
  void keep(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t image = first; image < last; ++image) {
      store->keep(image, content(image));
    }
  }
  static std::vector<WantedImage> want(std::uint64_t first, std::uint64_t last) {
    std::vector<WantedImage> wanted;
    for (std::uint64_t image = first; image < last; ++image) {
      wanted.push_back({.image = image, .size = size_of(image), .bytes = {}});
    }
    return wanted;
  }
  [[nodiscard]] std::unique_ptr<StoreServer> serve() const {
    auto server = StoreServer::start(*store, "127.0.0.1").value();
    server->admit(kView);
    return server;
  }

  ImageStore::Options options;
  std::unique_ptr<ImageStore> store;
  const AbortSignal stop;
};

TEST_F(StoreServerTest, AReaderGetsWhatTheHostKeepsAndNothingElse) {
  keep(0, 100);
  const auto server = serve();
  StoreReader reader(server->endpoint(), kView);
  std::vector<WantedImage> wanted = want(90, 110);
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 10U);
  for (const WantedImage& image : wanted) {
    EXPECT_EQ(image.bytes, image.image < 100 ? content(image.image) : Bytes()) << image.image;
    EXPECT_FALSE(image.is_damaged);
  }
  keep(100, 200);  // the host also serves images that it keeps later, over the same connection
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 20U);
  std::vector<WantedImage> nothing;
  EXPECT_EQ(reader.fetch(nothing, ample(), stop), 0U);
}

TEST_F(StoreServerTest, ManyReadersAreServedAtTheSameTime) {
  keep(0, kStored);
  const auto server = serve();
  std::vector<std::thread> readers;
  std::atomic<std::uint64_t> wrong{0};
  for (std::uint64_t r = 0; r < 6; ++r) {
    readers.emplace_back([&, r] {
      StoreReader reader(server->endpoint(), kView);
      for (std::uint64_t first = r; first + 30 < kStored; first += 17) {
        std::vector<WantedImage> wanted = want(first, first + 30);
        wrong += reader.fetch(wanted, ample(), stop) == 30 ? 0 : 1;
        for (const WantedImage& image : wanted) {
          wrong += image.bytes == content(image.image) ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(StoreServerTest, ConnectionsThatAskForNothingKeepNoReaderOut) {
  keep(0, 3);
  const auto server = serve();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(connect_tcp(server->endpoint(), ample()).value());
  }
  std::vector<WantedImage> wanted = want(0, 3);
  StoreReader reader(server->endpoint(), kView);
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 3U);
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(connect_tcp(server->endpoint(), ample()).value());
  }
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 3U) << "over the same connection";
  EXPECT_LE(server->readers(), 100U);
}

TEST_F(StoreServerTest, ThreadsOfAWorkerShareAFewConnections) {
  keep(0, kStored);
  const auto server = serve();
  StorePeer peer({server->endpoint(), store->id()}, kView, seconds(60), nullptr);
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> arrived{0};
  std::atomic<std::size_t> most{0};
  for (std::uint64_t t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t first = 0; first < 50; ++first) {
        std::vector<WantedImage> wanted = want(first, first + 10);
        peer.fetch(wanted, stop);
        arrived += static_cast<std::uint64_t>(
            std::ranges::count_if(wanted, [](const auto& image) { return !image.bytes.empty(); }));
        most = std::max(most.load(), server->readers());
        (void)peer.ask(kStored, stop);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(arrived, 16U * 50 * 10);
  EXPECT_LE(most, StorePeer::kConnections);
}

TEST_F(StoreServerTest, DamagedBytesAreFoundByTheirHash) {
  keep(0, 3);
  Bytes copy;
  const ByteSpan kept = store->find(1, size_of(1), copy).bytes;
  const_cast<std::byte&>(kept[0]) ^= std::byte{1};
  const auto server = serve();
  StoreReader reader(server->endpoint(), kView);
  std::vector<WantedImage> wanted = want(0, 3);
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 2U);
  EXPECT_TRUE(wanted[1].is_damaged);
  EXPECT_TRUE(wanted[1].bytes.empty());
  EXPECT_EQ(wanted[2].bytes, content(2)) << "those behind it are right";
}

TEST_F(StoreServerTest, AnOfferedImageIsKeptIfItsBytesAreRightAndThereIsRoom) {
  keep(0, 1);
  const auto server = serve();
  StoreReader reader(server->endpoint(), kView);
  for (std::uint64_t image = 0; image < 60; ++image) {
    reader.offer(image, content(image), ample(), stop);
  }
  std::vector<WantedImage> wanted = want(0, 60);
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 60U) << "over the same connection";
  reader.offer(70, Bytes(options.bytes_max + 1), ample(), stop);
  wanted = want(70, 71);
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 0U) << "there is no room";
  StoreReader(server->endpoint(), {3, 1}).offer(80, content(80), ample(), stop);
  StoreReader(server->endpoint(), kView).offer(kStored, content(1), ample(), stop);
  wanted = want(59, 81);
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 1U) << "of no member, and of no image";
}

/// Sends `parts`. Returns when the host has read them or closed the connection.
void send_raw(const Endpoint& host, std::span<const ByteSpan> parts) {
  UniqueFd fd = start_connect_tcp(host).value();
  for (ByteSpan part : parts) {
    while (!part.empty()) {
      const Moved moved = send_some(fd.get(), part.data(), part.size());
      part = part.subspan(moved.bytes);
      if (moved.closed) {
        return;
      }
    }
  }
  ::shutdown(fd.get(), SHUT_WR);
  std::byte end{};
  while (!receive_some(fd.get(), &end, 1).closed) {
    std::this_thread::yield();
  }
}

TEST_F(StoreServerTest, AnOfferWithAnotherHashOrSizeIsNotKept) {
  const auto server = serve();
  const StoreRequest request{.magic = kStoreMagic, .key = kView, .images = kStoreOffer};
  const Bytes bytes = content(5);
  for (const StoreAnswer& head :
       {StoreAnswer{.image = 5, .size = bytes.size(), .digest = {1, 2}},
        StoreAnswer{.image = 5, .size = UINT64_MAX, .digest = digest_of(bytes)},
        StoreAnswer{.image = 5, .size = 0, .digest = digest_of({})}}) {
    const std::vector<ByteSpan> parts = {std::as_bytes(std::span(&request, 1)),
                                         std::as_bytes(std::span(&head, 1)), bytes};
    send_raw(server->endpoint(), parts);
    EXPECT_FALSE(store->keeps(5)) << head.size;
  }
}

TEST_F(StoreServerTest, OnlyMembersOfTheViewAreAnswered) {
  keep(0, 3);
  const auto server = StoreServer::start(*store, "127.0.0.1").value();
  std::vector<WantedImage> wanted = want(0, 3);
  EXPECT_EQ(StoreReader(server->endpoint(), StoreKey{}).fetch(wanted, ample(), stop), 0U)
      << "there is no view yet";
  server->admit(kView);
  EXPECT_EQ(StoreReader(server->endpoint(), StoreKey{3, 1}).fetch(wanted, ample(), stop), 0U);
  EXPECT_EQ(StoreReader(server->endpoint(), StoreKey{2, 0x1234}).fetch(wanted, ample(), stop), 0U);
  StoreReader member(server->endpoint(), kView);
  EXPECT_EQ(member.fetch(wanted, ample(), stop), 3U);
  server->admit({4, 77});
  EXPECT_EQ(member.fetch(wanted, ample(), stop), 3U) << "it may not have begun that view yet";
  server->admit({5, 78});
  EXPECT_EQ(member.fetch(wanted, ample(), stop), 0U) << "its view is over";
  EXPECT_EQ(StoreReader(server->endpoint(), StoreKey{4, 77}).fetch(wanted, ample(), stop), 3U);
  EXPECT_EQ(StoreReader(server->endpoint(), StoreKey{5, 78}).fetch(wanted, ample(), stop), 3U);
}

TEST_F(StoreServerTest, AReaderThatBeginsAViewEarlierIsAnsweredWhenTheHostBeginsIt) {
  keep(0, 3);
  const auto server = serve();
  std::vector<WantedImage> wanted = want(0, 3);
  std::size_t got = 0;
  const Instant begun = monotonic_now();
  std::thread early([&] {
    got = StoreReader(server->endpoint(), StoreKey{4, 77}).fetch(wanted, ample(), stop);
  });
  while (server->readers() == 0 && monotonic_now() - begun < seconds(30)) {
    std::this_thread::yield();
  }
  server->admit({4, 77});
  early.join();
  EXPECT_EQ(got, 3U);
  EXPECT_EQ(StoreReader(server->endpoint(), StoreKey{9, 1}).fetch(wanted, ample(), stop), 0U)
      << "a view that does not begin is not waited for";
}

TEST_F(StoreServerTest, WhoeverSendsSomethingElseIsCutOffAndOthersAreServed) {
  keep(0, 3);
  const auto server = serve();
  RandomStream random(CounterRandom(1));
  for (int round = 0; round < 20; ++round) {
    const auto fd = connect_tcp(server->endpoint(), ample()).value();
    StoreRequest request{.magic = kStoreMagic, .key = kView, .images = 1};
    if (round % 4 == 0) {
      request.images = kStoreRequestMax + 1;
    } else if (round % 4 == 1) {
      request.magic = random.bits();
    }
    const std::uint64_t image = round % 4 == 2 ? kStored : 1;  // the first number beyond the set
    ASSERT_TRUE(send_exactly(fd.get(), std::as_bytes(std::span(&request, 1)), ample()).ok());
    const bool is_said = send_exactly(fd.get(), std::as_bytes(std::span(&image, 1)), ample()).ok();
    StoreAnswer answer;
    const bool is_answered =
        is_said &&
        receive_exactly(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), ample()).ok();
    EXPECT_EQ(is_answered, round % 4 == 3) << round;
  }
  std::vector<WantedImage> wanted = want(0, 3);
  EXPECT_EQ(StoreReader(server->endpoint(), kView).fetch(wanted, ample(), stop), 3U);
}

TEST_F(StoreServerTest, AHostThatDoesNotAnswerCostsOneDeadline) {
  const auto silent = listen_tcp({"127.0.0.1", 0}).value();  // connects, but never answers
  StoreReader reader(bound_endpoint(silent.get()), kView);
  std::vector<WantedImage> wanted = want(0, 3);
  EXPECT_EQ(reader.fetch(wanted, monotonic_now() + milliseconds(20), stop), 0U);
  const Instant begun = monotonic_now();
  EXPECT_EQ(reader.fetch(wanted, ample(), stop), 0U) << "it is not asked again at once";
  EXPECT_LT(monotonic_now() - begun, seconds(30));
}

TEST_F(StoreServerTest, AFetchEndsWhenItIsStopped) {
  const auto silent = listen_tcp({"127.0.0.1", 0}).value();
  StoreReader reader(bound_endpoint(silent.get()), kView);
  AbortSignal view_is_over;
  std::thread other([&] { view_is_over.raise(); });
  std::vector<WantedImage> wanted = want(0, 3);
  const Instant begun = monotonic_now();
  EXPECT_EQ(reader.fetch(wanted, ample(), view_is_over), 0U);
  EXPECT_LT(monotonic_now() - begun, seconds(30));
  other.join();
}

// A host is killed at any moment while a reader asks it. All images that arrive are right.
TEST_F(StoreServerTest, AHostThatIsKilledCostsReadsFromStorageOnly) {
  keep(0, kStored);
  std::uint64_t arrived = 0;
  std::uint64_t missing = 0;
  for (int round = 0; round < 100; ++round) {
    int port_pipe[2] = {-1, -1};
    ASSERT_EQ(::pipe(port_pipe), 0);
    const ::pid_t child = ::fork();
    if (child == 0) {
      const auto server = serve();
      const std::uint16_t port = server->endpoint().port;
      (void)!::write(port_pipe[1], &port, sizeof port);
      ::pause();
      ::_exit(0);
    }
    std::uint16_t port = 0;
    ASSERT_EQ(::read(port_pipe[0], &port, sizeof port), static_cast<::ssize_t>(sizeof port));
    std::thread killer([&] {
      ::usleep(static_cast<::useconds_t>(40 * round));
      ::kill(child, SIGKILL);
    });
    StoreReader reader({"127.0.0.1", port}, kView);
    for (std::size_t got = 20; got == 20;) {
      std::vector<WantedImage> wanted = want(0, 20);
      got = reader.fetch(wanted, ample(), stop);
      arrived += got;
      missing += 20 - got;
      for (const WantedImage& image : wanted) {
        ASSERT_TRUE(image.bytes.empty() || image.bytes == content(image.image)) << image.image;
        ASSERT_FALSE(image.is_damaged);
      }
    }
    killer.join();
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ::close(port_pipe[0]);
    ::close(port_pipe[1]);
  }
  EXPECT_GT(arrived, 0U);
  EXPECT_GT(missing, 0U);
}

TEST(AnswerTimes, PatienceIsTwiceWhatNinetyNineOfAHundredTook) {
  AnswerTimes times;
  EXPECT_EQ(times.patience(), AnswerTimes::kLeast);
  for (int i = 0; i < 100; ++i) {
    times.add(milliseconds(1));
  }
  EXPECT_EQ(times.patience(), AnswerTimes::kLeast);
  times.add(seconds(5));  // one slow answer among a hundred is an exception
  EXPECT_EQ(times.patience(), AnswerTimes::kLeast);
  for (int i = 0; i < 20; ++i) {
    times.add(milliseconds(100));
  }
  EXPECT_EQ(times.patience(), milliseconds(200));
  for (int i = 0; i < 20; ++i) {
    times.add(seconds(3));
  }
  EXPECT_EQ(times.patience(), AnswerTimes::kMost);
  for (int i = 0; i < 128; ++i) {
    times.add(milliseconds(2));  // old times are forgotten
  }
  EXPECT_EQ(times.patience(), AnswerTimes::kLeast);
}

}  // namespace
}  // namespace mayfly::datasets
