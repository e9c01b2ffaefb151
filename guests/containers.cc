/* C++ library at work: streams, map, unordered_map keyed by address, sort, regex, random with a fixed seed, chrono. */
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <sstream>
#include <unordered_map>
#include <vector>

int main() {
    std::mt19937 gen(42);
    std::map<std::string, int> count;
    std::unordered_map<void *, int> by_address;
    std::vector<std::unique_ptr<int>> own;
    for (int i = 0; i < 5000; i++) {
        count["word" + std::to_string(gen() % 97)]++;
        own.push_back(std::make_unique<int>(i));
        by_address[own.back().get()] = i;
    }
    long sum = 0, order = 0;
    for (auto &[p, v] : by_address) sum += v, order = order * 31 + v;
    std::ofstream("/dev/null") << order; /* the order depends on addresses */
    std::vector<std::pair<int, std::string>> top;
    for (auto &[w, n] : count) top.emplace_back(n, w);
    std::sort(top.rbegin(), top.rend());
    std::cout << top[0].second << ' ' << top[0].first << ' ' << sum << '\n';
    std::stringstream s;
    s << std::hex << 48879 << ' ' << std::fixed << 2.5;
    std::cout << s.str() << ' ' << std::regex_replace("a1b22c333", std::regex("[0-9]+"), "#") << std::endl;
    auto a = std::chrono::steady_clock::now(), b = std::chrono::steady_clock::now();
    std::cout << (a <= b) << '\n';
    return 0;
}
