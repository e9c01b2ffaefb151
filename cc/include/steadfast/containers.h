/*
 * What libstdc++ keeps compiled of its trees and lists, for programs whose state has copies or checksums. Included by
 * steadfast/cxx.h; calls of the library's functions become calls of these (pass/state.cpp).
 *
 * The library's own code would follow the pointers of nodes, which are addresses of objects, in the second run as well,
 * whose nodes are the copies; and what it writes would reach no copy and no checksum. Compiled with the program, these are
 * hardened and checked as all of it is.
 *
 * Trees: a header, of which `parent` is the root, child[0] and child[1] the first and the last node; it is red, which tells
 * it from the root. Rebalancing as in Cormen, Leiserson, Rivest, Stein, Introduction to Algorithms, chapter 13, with both
 * sides written once. Lists: a ring through a header.
 *
 * Invariant: layouts are those of std::_Rb_tree_node_base and std::__detail::_List_node_base (libstdc++ since GCC 5). The
 * program reads the same nodes by those types, and both are inlined into each other: may_alias.
 *
 * Not covered: how hash tables grow, which libstdc++ computes beside the nodes (runtime/outside.c, runtime/cxx.c).
 */
#ifndef STEADFAST_CONTAINERS_H
#define STEADFAST_CONTAINERS_H

#define SF_KEPT inline __attribute__((used))

#pragma GCC visibility push(hidden)
extern "C" {

struct __attribute__((may_alias)) sf_tree_node {
  int black;
  sf_tree_node *parent, *child[2];
};

struct __attribute__((may_alias)) sf_list_node {
  sf_list_node *next, *previous;
};

inline sf_tree_node *sf_tree_end(sf_tree_node *n, int side) {
  while (n->child[side])
    n = n->child[side];
  return n;
}

inline sf_tree_node *sf_tree_step(sf_tree_node *n, int side) {
  if (n->child[side])
    return sf_tree_end(n->child[side], !side);
  sf_tree_node *above = n->parent;
  while (n == above->child[side]) {
    n = above;
    above = above->parent;
  }
  // Where the root is the last node, the way up has gone round through the header.
  return n->child[side] == above ? n : above;
}

SF_KEPT sf_tree_node *sf_tree_next(sf_tree_node *n) { return sf_tree_step(n, 1); }

SF_KEPT sf_tree_node *sf_tree_previous(sf_tree_node *n) {
  bool header = !n->black && n->parent && n->parent->parent == n;
  return header ? n->child[1] : sf_tree_step(n, 0);
}

// What hung below `old`'s parent in its place is `now`.
inline void sf_tree_replace(sf_tree_node *header, sf_tree_node *old, sf_tree_node *now) {
  sf_tree_node *above = old->parent;
  if (header->parent == old)
    header->parent = now;
  else
    above->child[above->child[1] == old] = now;
  if (now)
    now->parent = above;
}

// `n` goes down to `side`, its other child comes up.
inline void sf_tree_rotate(sf_tree_node *header, sf_tree_node *n, int side) {
  sf_tree_node *up = n->child[!side];
  n->child[!side] = up->child[side];
  if (n->child[!side])
    n->child[!side]->parent = n;
  sf_tree_replace(header, n, up);
  up->child[side] = n;
  n->parent = up;
}

SF_KEPT void sf_tree_insert(bool left, sf_tree_node *n, sf_tree_node *above, sf_tree_node *header) {
  int side = !left;
  n->black = 0;
  n->parent = above;
  n->child[0] = n->child[1] = 0;
  if (above == header) {
    header->parent = header->child[0] = header->child[1] = n;
  } else {
    above->child[side] = n;
    if (header->child[side] == above)
      header->child[side] = n;
  }
  while (n != header->parent && !n->parent->black) {
    sf_tree_node *p = n->parent, *grand = p->parent;
    side = grand->child[1] == p;
    sf_tree_node *uncle = grand->child[!side];
    if (uncle && !uncle->black) {
      p->black = uncle->black = 1;
      grand->black = 0;
      n = grand;
      continue;
    }
    if (p->child[!side] == n) {
      sf_tree_rotate(header, p, side);
      p = n;
      n = p->child[side];
    }
    p->black = 1;
    grand->black = 0;
    sf_tree_rotate(header, grand, !side);
  }
  header->parent->black = 1;
}

SF_KEPT sf_tree_node *sf_tree_erase(sf_tree_node *n, sf_tree_node *header) {
  for (int side = 0; side < 2; side++)
    if (header->child[side] == n)
      header->child[side] = n->child[!side] ? sf_tree_end(n->child[!side], side) : n->parent;
  // What takes the place that is given up, perhaps nothing, and what stands above it.
  sf_tree_node *low, *above;
  int black = n->black;
  if (!n->child[0] || !n->child[1]) {
    low = n->child[!n->child[0]];
    above = n->parent;
    sf_tree_replace(header, n, low);
  } else {
    sf_tree_node *next = sf_tree_end(n->child[1], 0);
    black = next->black;
    low = next->child[1];
    above = next;
    if (next->parent != n) {
      above = next->parent;
      sf_tree_replace(header, next, low);
      next->child[1] = n->child[1];
      next->child[1]->parent = next;
    }
    sf_tree_replace(header, n, next);
    next->child[0] = n->child[0];
    next->child[0]->parent = next;
    next->black = n->black;
  }
  while (black && low != header->parent && (!low || low->black)) {
    int side = above->child[0] != low;
    sf_tree_node *brother = above->child[!side];
    if (!brother->black) {
      brother->black = 1;
      above->black = 0;
      sf_tree_rotate(header, above, side);
      brother = above->child[!side];
    }
    bool near = brother->child[side] && !brother->child[side]->black;
    bool far = brother->child[!side] && !brother->child[!side]->black;
    if (!near && !far) {
      brother->black = 0;
      low = above;
      above = low->parent;
      continue;
    }
    if (!far) {
      brother->child[side]->black = 1;
      brother->black = 0;
      sf_tree_rotate(header, brother, !side);
      brother = above->child[!side];
    }
    brother->black = above->black;
    above->black = brother->child[!side]->black = 1;
    sf_tree_rotate(header, above, side);
    break;
  }
  if (black && low)
    low->black = 1;
  return n;
}

SF_KEPT void sf_list_hook(sf_list_node *n, sf_list_node *at) {
  n->next = at;
  n->previous = at->previous;
  at->previous->next = n;
  at->previous = n;
}

SF_KEPT void sf_list_unhook(sf_list_node *n) {
  n->previous->next = n->next;
  n->next->previous = n->previous;
}

// From `first` up to `end`, to before `at`.
SF_KEPT void sf_list_transfer(sf_list_node *at, sf_list_node *first, sf_list_node *end) {
  if (at == end || first == end)
    return;
  sf_list_node *last = end->previous;
  first->previous->next = end;
  end->previous = first->previous;
  at->previous->next = first;
  first->previous = at->previous;
  last->next = at;
  at->previous = last;
}

SF_KEPT void sf_list_reverse(sf_list_node *header) {
  sf_list_node *n = header;
  do {
    sf_list_node *next = n->next;
    n->next = n->previous;
    n->previous = next;
    n = next;
  } while (n != header);
}

SF_KEPT void sf_list_swap(sf_list_node *a, sf_list_node *b) {
  sf_list_node first = *a, second = *b;
  bool none = first.next == a, nothing = second.next == b;
  *a = second;
  *b = first;
  if (nothing)
    a->next = a->previous = a;
  else
    a->next->previous = a->previous->next = a;
  if (none)
    b->next = b->previous = b;
  else
    b->next->previous = b->previous->next = b;
}

} // extern "C"
#pragma GCC visibility pop

#undef SF_KEPT
#endif
