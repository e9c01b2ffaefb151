// Handlers in C++ that wait for conditions: std::condition_variable, with a predicate, with a limit, and an exception
// after the wait. Their source says no more about waiting than any program does.
#include <steadfast/sei.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

class Channel {
public:
  void send(std::string text) {
    std::unique_lock<std::mutex> hold(mutex);
    space.wait(hold, [this] { return texts.size() < 3; });
    texts.push_back(std::move(text));
    some.notify_one();
  }

  std::string receive() {
    std::unique_lock<std::mutex> hold(mutex);
    while (texts.empty() && !closed)
      some.wait(hold);
    if (texts.empty())
      throw std::runtime_error("closed");
    std::string text = std::move(texts.front());
    texts.pop_front();
    space.notify_all();
    return text;
  }

  bool receiveUntil(std::chrono::milliseconds limit) {
    std::unique_lock<std::mutex> hold(mutex);
    return some.wait_for(hold, limit, [this] { return !texts.empty(); });
  }

  void close() {
    std::lock_guard<std::mutex> hold(mutex);
    closed = true;
    some.notify_all();
  }

private:
  std::mutex mutex;
  std::condition_variable some, space;
  std::deque<std::string> texts;
  bool closed = false;
};

Channel channel;
std::mutex sum;
unsigned long letters, received;

} // namespace

SF_LOCAL_HANDLER void produce(unsigned i) {
  auto text = std::make_unique<std::string>(i % 50, char('a' + i % 26));
  channel.send(*text + "!");
}

SF_LOCAL_HANDLER bool consume(unsigned base) {
  std::vector<unsigned> weights(4, base);
  try {
    std::string text = channel.receive();
    std::lock_guard<std::mutex> hold(sum);
    received++;
    for (char c : text)
      letters += static_cast<unsigned char>(c) * weights[letters % 4];
  } catch (const std::runtime_error &) {
    return false;
  }
  return true;
}

SF_LOCAL_HANDLER unsigned leave() {
  std::string text = channel.receive(); // closed: the exception leaves the handler
  return static_cast<unsigned>(text.size());
}

SF_LOCAL_HANDLER bool patience() { return channel.receiveUntil(std::chrono::milliseconds(10)); }

int main() {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 3; t++)
    threads.emplace_back([] {
      while (consume(3))
        ;
    });
  std::vector<std::thread> senders;
  for (unsigned t = 0; t < 2; t++)
    senders.emplace_back([t] {
      for (unsigned i = t; i < 100; i += 2)
        produce(i);
    });
  for (auto &t : senders)
    t.join();
  channel.close();
  for (auto &t : threads)
    t.join();
  bool timely = patience();
  std::string left = "no exception";
  try {
    leave();
  } catch (const std::runtime_error &e) {
    left = e.what();
  }
  std::printf("received %lu letters %lu timely %d left %s\n", received, letters, timely, left.c_str());
}
