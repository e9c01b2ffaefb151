/*
 * The trees and lists of steadfast/containers.h in the place of libstdc++'s: this program defines the library's names, so
 * that std::set and std::list work on them. Random changes, against a sorted vector and a vector; after each change of a tree
 * its rules are looked at: order, links, no red node below a red one, as many black nodes on each way down.
 */
#include <steadfast/containers.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <random>
#include <set>
#include <vector>

#define STANDS_FOR(MANGLED, RESULT, PARAMETERS, OURS) extern "C" RESULT MANGLED PARAMETERS __attribute__((alias(#OURS)));
STANDS_FOR(_ZSt18_Rb_tree_incrementPSt18_Rb_tree_node_base, sf_tree_node *, (sf_tree_node *), sf_tree_next)
STANDS_FOR(_ZSt18_Rb_tree_incrementPKSt18_Rb_tree_node_base, sf_tree_node *, (sf_tree_node *), sf_tree_next)
STANDS_FOR(_ZSt18_Rb_tree_decrementPSt18_Rb_tree_node_base, sf_tree_node *, (sf_tree_node *), sf_tree_previous)
STANDS_FOR(_ZSt18_Rb_tree_decrementPKSt18_Rb_tree_node_base, sf_tree_node *, (sf_tree_node *), sf_tree_previous)
STANDS_FOR(_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_, void, (bool, sf_tree_node *, sf_tree_node *, sf_tree_node *), sf_tree_insert)
STANDS_FOR(_ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_, sf_tree_node *, (sf_tree_node *, sf_tree_node *), sf_tree_erase)
STANDS_FOR(_ZNSt8__detail15_List_node_base7_M_hookEPS0_, void, (sf_list_node *, sf_list_node *), sf_list_hook)
STANDS_FOR(_ZNSt8__detail15_List_node_base9_M_unhookEv, void, (sf_list_node *), sf_list_unhook)
STANDS_FOR(_ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_, void, (sf_list_node *, sf_list_node *, sf_list_node *), sf_list_transfer)
STANDS_FOR(_ZNSt8__detail15_List_node_base10_M_reverseEv, void, (sf_list_node *), sf_list_reverse)
STANDS_FOR(_ZNSt8__detail15_List_node_base4swapERS0_S1_, void, (sf_list_node *, sf_list_node *), sf_list_swap)

static void must(bool holds, const char *what) {
  if (!holds)
    std::printf("wrong: %s\n", what), std::exit(1);
}

/* Black nodes on each way down from here. */
static int blacks(const sf_tree_node *n, const sf_tree_node *above) {
  if (!n)
    return 1;
  must(n->parent == above, "a link to the parent");
  must(n->black || !n->child[0] || n->child[0]->black, "red below red, left");
  must(n->black || !n->child[1] || n->child[1]->black, "red below red, right");
  int left = blacks(n->child[0], n), right = blacks(n->child[1], n);
  must(left == right, "as many black nodes on both sides");
  return left + n->black;
}

static void tree(std::mt19937 &random, int keys, int steps) {
  std::set<int> ours;
  std::vector<int> sorted;
  auto *header = (sf_tree_node *)((char *)&ours + 8);
  for (int i = 0; i < steps; i++) {
    int key = (int)(random() % (unsigned)keys);
    auto at = std::lower_bound(sorted.begin(), sorted.end(), key);
    bool known = at != sorted.end() && *at == key;
    if (random() % 5 < 3) {
      must(ours.insert(key).second == !known, "what insert answers");
      if (!known)
        sorted.insert(at, key);
    } else {
      must(ours.erase(key) == known, "what erase answers");
      if (known)
        sorted.erase(at);
    }
    must(!header->black, "the header is red");
    must(!header->parent || header->parent->black, "the root is black");
    blacks(header->parent, header);
    must(std::equal(ours.begin(), ours.end(), sorted.begin(), sorted.end()), "the order");
    must(std::equal(ours.rbegin(), ours.rend(), sorted.rbegin(), sorted.rend()), "the order backwards");
  }
  while (!ours.empty()) {
    ours.erase(random() % 2 ? ours.begin() : std::prev(ours.end()));
    blacks(header->parent, header);
  }
  must(header->child[0] == header && header->child[1] == header, "an empty tree's ends");
}

static void lists(std::mt19937 &random, int steps) {
  std::list<int> a, b;
  std::vector<int> u, v;
  for (int i = 0; i < steps; i++) {
    std::size_t place = u.empty() ? 0 : random() % (u.size() + 1);
    switch (random() % 7) {
    case 0:
    case 1:
      a.insert(std::next(a.begin(), (long)place), i), u.insert(u.begin() + (long)place, i);
      break;
    case 2:
      if (place < u.size())
        a.erase(std::next(a.begin(), (long)place)), u.erase(u.begin() + (long)place);
      break;
    case 3:
      a.reverse(), std::reverse(u.begin(), u.end());
      break;
    case 4:
      a.swap(b), u.swap(v);
      break;
    case 5:
      a.splice(std::next(a.begin(), (long)place), b), u.insert(u.begin() + (long)place, v.begin(), v.end()), v.clear();
      break;
    case 6:
      a.sort(), std::sort(u.begin(), u.end());
      break;
    }
    must(std::equal(a.begin(), a.end(), u.begin(), u.end()), "a list's order");
    must(std::equal(a.rbegin(), a.rend(), u.rbegin(), u.rend()), "a list's order backwards");
    must(std::equal(b.begin(), b.end(), v.begin(), v.end()), "the other list's order");
  }
}

int main() {
  std::mt19937 random(5);
  for (int keys : {1, 2, 3, 5, 8, 20, 100, 700})
    for (int round = 0; round < 20; round++)
      tree(random, keys, 40 + 3 * keys);
  for (int round = 0; round < 40; round++)
    lists(random, 200);
  std::printf("trees and lists are as they should be\n");
}
