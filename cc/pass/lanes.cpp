// Vector stores under a mask, and scatters, taken apart: a store for each element, where its bit of the mask is set. So the
// log holds what is written and nothing else, and no element is looked at that the program may not touch. Loads under a mask, and
// gathers, too, where each of them has to find its copy (state.cpp).
//
// Not covered: elements that are not whole bytes, and vectors whose length the compiler does not know (refused by the caller).

#include "harden.h"

#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace steadfast {

static bool isWhole(Type *Element, const DataLayout &Layout) {
  uint64_t Bits = Layout.getTypeSizeInBits(Element).getFixedValue();
  return Bits % 8 == 0 && Bits == 8 * Layout.getTypeAllocSize(Element).getFixedValue();
}

// llvm.masked.store(vector, pointer, alignment, mask), llvm.masked.scatter(vector, pointers, alignment, mask)
static void split(IntrinsicInst &Whole, FixedVectorType &Vector) {
  const DataLayout &Layout = Whole.getModule()->getDataLayout();
  Type *Element = Vector.getElementType();
  Value *Values = Whole.getArgOperand(0), *To = Whole.getArgOperand(1), *Mask = Whole.getArgOperand(3);
  Align Aligned = cast<ConstantInt>(Whole.getArgOperand(2))->getMaybeAlignValue().valueOrOne();
  bool IsScatter = Whole.getIntrinsicID() == Intrinsic::masked_scatter;
  uint64_t Bytes = Layout.getTypeAllocSize(Element).getFixedValue();
  for (unsigned I = 0; I != Vector.getNumElements(); ++I) {
    Value *Bit = IRBuilder<>(&Whole).CreateExtractElement(Mask, I);
    if (auto *Known = dyn_cast<ConstantInt>(Bit); Known && Known->isZero())
      continue;
    IRBuilder<> B(SplitBlockAndInsertIfThen(Bit, &Whole, false));
    B.SetCurrentDebugLocation(Whole.getDebugLoc());
    Value *At = IsScatter ? B.CreateExtractElement(To, I) : B.CreateConstGEP1_64(B.getInt8Ty(), To, I * Bytes);
    B.CreateAlignedStore(B.CreateExtractElement(Values, I), At, IsScatter ? Aligned : commonAlignment(Aligned, I * Bytes));
  }
  Whole.eraseFromParent();
}

// llvm.masked.load(pointer, alignment, mask, otherwise), llvm.masked.gather(pointers, alignment, mask, otherwise)
static void splitLoad(IntrinsicInst &Whole, FixedVectorType &Vector) {
  const DataLayout &Layout = Whole.getModule()->getDataLayout();
  Type *Element = Vector.getElementType();
  Value *From = Whole.getArgOperand(0), *Mask = Whole.getArgOperand(2), *Result = Whole.getArgOperand(3);
  Align Aligned = cast<ConstantInt>(Whole.getArgOperand(1))->getMaybeAlignValue().valueOrOne();
  bool IsGather = Whole.getIntrinsicID() == Intrinsic::masked_gather;
  uint64_t Bytes = Layout.getTypeAllocSize(Element).getFixedValue();
  for (unsigned I = 0; I != Vector.getNumElements(); ++I) {
    Value *Bit = IRBuilder<>(&Whole).CreateExtractElement(Mask, I);
    if (auto *Known = dyn_cast<ConstantInt>(Bit); Known && Known->isZero())
      continue;
    BasicBlock *Head = Whole.getParent();
    IRBuilder<> B(SplitBlockAndInsertIfThen(Bit, &Whole, false));
    B.SetCurrentDebugLocation(Whole.getDebugLoc());
    Value *At = IsGather ? B.CreateExtractElement(From, I) : B.CreateConstGEP1_64(B.getInt8Ty(), From, I * Bytes);
    Value *Loaded = B.CreateAlignedLoad(Element, At, IsGather ? Aligned : commonAlignment(Aligned, I * Bytes));
    Value *With = B.CreateInsertElement(Result, Loaded, I);
    B.SetInsertPoint(&Whole);
    PHINode *Either = B.CreatePHI(&Vector, 2);
    Either->addIncoming(Result, Head);
    Either->addIncoming(With, cast<Instruction>(Loaded)->getParent());
    Result = Either;
  }
  Whole.replaceAllUsesWith(Result);
  Whole.eraseFromParent();
}

void splitLanes(Function &F, bool Loads) {
  SmallVector<IntrinsicInst *, 4> Stored, Loaded;
  for (Instruction &I : instructions(F))
    if (auto *II = dyn_cast<IntrinsicInst>(&I)) {
      auto Id = II->getIntrinsicID();
      if (Id == Intrinsic::masked_store || Id == Intrinsic::masked_scatter)
        Stored.push_back(II);
      else if (Loads && (Id == Intrinsic::masked_load || Id == Intrinsic::masked_gather))
        Loaded.push_back(II);
    }
  const DataLayout &Layout = F.getParent()->getDataLayout();
  auto each = [&](ArrayRef<IntrinsicInst *> All, auto Type, auto Split) {
    for (IntrinsicInst *II : All)
      if (auto *Vector = dyn_cast<FixedVectorType>(Type(*II)); Vector && isWhole(Vector->getElementType(), Layout))
        Split(*II, *Vector);
  };
  each(Stored, [](IntrinsicInst &I) { return I.getArgOperand(0)->getType(); }, split);
  each(Loaded, [](IntrinsicInst &I) { return I.getType(); }, splitLoad);
}

} // namespace steadfast
