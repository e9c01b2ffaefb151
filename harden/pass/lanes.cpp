// Vector stores under a mask, and scatters, taken apart: a store for each element, where its bit of the mask is set. So the
// log holds what is written and nothing else, and no element is looked at that the program may not touch.
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

void splitLanes(Function &Clone) {
  SmallVector<IntrinsicInst *, 4> Found;
  for (Instruction &I : instructions(Clone))
    if (auto *II = dyn_cast<IntrinsicInst>(&I))
      if (II->getIntrinsicID() == Intrinsic::masked_store || II->getIntrinsicID() == Intrinsic::masked_scatter)
        Found.push_back(II);
  for (IntrinsicInst *II : Found)
    if (auto *Vector = dyn_cast<FixedVectorType>(II->getArgOperand(0)->getType());
        Vector && isWhole(Vector->getElementType(), Clone.getParent()->getDataLayout()))
      split(*II, *Vector);
}

} // namespace steadfast
