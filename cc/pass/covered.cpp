// Stores to bytes that the same run has logged before.
//
// Where an operation that dominates a store has logged all bytes which that store writes, and nothing on any way from one to the other can end
// the event, the store needs no look into the table of words: its bytes are in the log, in both runs. That operation is a store, or a fill or
// copy of known length, such as one that clears a structure before it is filled in. It remains that the store goes where the log says: it takes
// its address from a register of its own, which is compared behind it with the address of that operation, kept in another one.
//
// Invariants
//  1. The operation that logs is looked up itself, before it and behind it.
//  2. Only calls that return to the same event lie between the two: no handler ends there, none waits, and no other run begins.
//
// Not covered, and looked up as ever: stores whose distance from such an operation the compiler does not know; those behind a call of another
// module or through a pointer, which may wait for a condition; and all of them with --recover, --state, --validate=async and
// --find-nondeterminism, which look at each store.

#include "harden.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace steadfast {

namespace {

// Of the runtime: none of them lets a handler wait, begin or end.
const StringSet<> OfOneEvent = {"__sf_log",      "__sf_ready",     "__sf_logged",     "__sf_memcpy",        "__sf_memmove",
                                "__sf_memset",   "__sf_load_once", "__sf_load_mixed", "__sf_range_next",    "__sf_range_end",
                                "__sf_once",     "__sf_once_done", "__sf_defer",      "__sf_atomic_logged", "__sf_w_malloc",
                                "__sf_w_calloc", "__sf_w_realloc", "__sf_w_free"};

// What logs its bytes, or may find them logged.
struct Place {
  Instruction *By;
  int64_t At;
  int64_t Bytes;
};

bool contains(const Place &Outer, const Place &Inner) { return Outer.At <= Inner.At && Inner.At + Inner.Bytes <= Outer.At + Outer.Bytes; }

// A store that is looked up as one whole word or part of a word: neighbours of it are looked up with it (memory.cpp).
bool isAlignedWord(const Place &P) {
  auto *S = dyn_cast<StoreInst>(P.By);
  return S && P.Bytes <= 8 && isPowerOf2_64(uint64_t(P.Bytes)) && S->getAlign().value() >= uint64_t(P.Bytes);
}

} // namespace

bool endsNeighbours(const Instruction &I) {
  bool Harmless = isa<DbgInfoIntrinsic>(I) || (isa<IntrinsicInst>(I) && cast<IntrinsicInst>(I).doesNotAccessMemory());
  return (isa<CallBase>(I) && !Harmless) || I.isAtomic() || I.isVolatile() || isa<FenceInst>(I);
}

Events::Events(const Config &C, const Clones &Made) : C(C) {
  for (auto &[Original, Clone] : Made)
    Whole.insert(Clone);
  // A function is taken for one that stays in its event until a call in it says otherwise.
  for (bool Changed = true; Changed;) {
    Changed = false;
    for (auto &[Original, Clone] : Made)
      if (Whole.contains(Clone) && any_of(instructions(*Clone), [&](const Instruction &I) { return mayEnd(I); })) {
        Whole.erase(Clone);
        Changed = true;
      }
  }
}

bool Events::mayEnd(const Instruction &I) const {
  auto *Call = dyn_cast<CallBase>(&I);
  if (!Call || isa<IntrinsicInst>(Call) || Call->isInlineAsm()) // assembly of a program calls nothing, as treatCalls has seen to it
    return false;
  const Function *Callee = Call->getCalledFunction();
  if (!Callee)
    return true;
  if (Callee->getName() == "sf_ignore") // which is pure, and changes what is in the log
    return true;
  if (Whole.contains(Callee) || OfOneEvent.contains(Callee->getName()))
    return false;
  if (!Callee->isDeclaration() || Callee->getName().starts_with("__sf_"))
    return true;
  Class How = C.treatmentOf(*Callee).How;
  return How != Class::Pure && How != Class::Once;
}

namespace {

class Finder {
public:
  Finder(Function &F, const Events &E, function_ref<bool(const Instruction &, const Value *)> Wanted)
      : Layout(F.getParent()->getDataLayout()), E(E), Tree(F) {
    Tree.updateDFSNumbers();
    for (Instruction &I : instructions(F)) {
      if (auto *S = dyn_cast<StoreInst>(&I)) {
        TypeSize Bytes = Layout.getTypeStoreSize(S->getValueOperand()->getType());
        if (!Bytes.isScalable() && S->isSimple() && Wanted(I, S->getPointerOperand()))
          add(I, S->getPointerOperand(), int64_t(Bytes.getFixedValue()));
      } else if (auto *M = dyn_cast<MemIntrinsic>(&I)) {
        auto *Bytes = dyn_cast<ConstantInt>(M->getLength());
        if (Bytes && Bytes->getValue().isIntN(31) && !M->isVolatile() && Wanted(I, M->getDest()))
          add(I, M->getDest(), Bytes->getSExtValue());
      }
    }
  }

  CoveredStores find() {
    CoveredStores Found;
    for (auto &[Base, Places] : Places) {
      // Those that dominate others come before them.
      llvm::sort(Places, [&](const Place &A, const Place &B) {
        return A.By->getParent() == B.By->getParent() ? A.By->comesBefore(B.By) : number(A) < number(B);
      });
      for (size_t I = 1; I < Places.size(); ++I) {
        auto *S = dyn_cast<StoreInst>(Places[I].By);
        for (size_t J = 0; S && J != I; ++J)
          if (!Found.count(dyn_cast<StoreInst>(Places[J].By)) && contains(Places[J], Places[I]) && covers(Places[J], Places[I])) {
            Found[S] = {Places[J].By, Places[I].At - Places[J].At};
            break;
          }
      }
    }
    return Found;
  }

private:
  const DataLayout &Layout;
  const Events &E;
  DominatorTree Tree;
  MapVector<const Value *, SmallVector<Place, 4>> Places;
  DenseMap<const BasicBlock *, bool> Ends;

  void add(Instruction &I, Value *Pointer, int64_t Bytes) {
    APInt Offset(Layout.getIndexTypeSizeInBits(Pointer->getType()), 0);
    const Value *Base = Pointer->stripAndAccumulateConstantOffsets(Layout, Offset, true);
    if (Bytes > 0 && Tree.isReachableFromEntry(I.getParent()))
      Places[Base].push_back({&I, Offset.getSExtValue(), Bytes});
  }

  unsigned number(const Place &P) const { return Tree.getNode(P.By->getParent())->getDFSNumIn(); }

  bool covers(const Place &First, const Place &Second) {
    const Instruction &From = *First.By, &To = *Second.By;
    if (!Tree.dominates(&From, &To))
      return false;
    if (From.getParent() == To.getParent()) {
      auto Between = make_range(std::next(From.getIterator()), To.getIterator());
      bool Neighbours = isAlignedWord(First) && none_of(Between, endsNeighbours);
      return !Neighbours && none_of(Between, [&](const Instruction &I) { return E.mayEnd(I); });
    }
    return inOneEvent(From, To);
  }

  bool endsIn(const BasicBlock &Block) {
    auto [At, New] = Ends.try_emplace(&Block, false);
    if (New) {
      bool Any = any_of(Block, [&](const Instruction &I) { return E.mayEnd(I); });
      Ends[&Block] = Any;
      return Any;
    }
    return At->second;
  }

  // Every way from the first, which dominates the second, to the second: those that lead through the first again begin there.
  bool inOneEvent(const Instruction &From, const Instruction &To) {
    const BasicBlock *Begin = From.getParent(), *End = To.getParent();
    auto ends = [&](const Instruction &I) { return E.mayEnd(I); };
    if (any_of(make_range(From.getIterator(), Begin->end()), ends) || any_of(make_range(End->begin(), To.getIterator()), ends))
      return false;
    SmallPtrSet<const BasicBlock *, 16> Seen;
    SmallVector<const BasicBlock *, 16> Next(predecessors(End));
    while (!Next.empty()) {
      const BasicBlock *Block = Next.pop_back_val();
      if (Block == Begin || !Tree.isReachableFromEntry(Block) || !Seen.insert(Block).second)
        continue;
      if (endsIn(*Block))
        return false;
      Next.append(pred_begin(Block), pred_end(Block));
    }
    return true;
  }
};

} // namespace

CoveredStores coveredStores(Function &Clone, const Config &C, const Events &E,
                            function_ref<bool(const Instruction &, const Value *)> Wanted) {
  if (C.Recover || C.Dup || C.Crc || C.Async || C.Trace)
    return {};
  return Finder(Clone, E, Wanted).find();
}

} // namespace steadfast
