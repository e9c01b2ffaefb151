// Computed gotos: the labels of a function, and what they are kept in.
#ifndef STEADFAST_PASS_LABELS_H
#define STEADFAST_PASS_LABELS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/GlobalVariable.h"

namespace steadfast {

struct Labels {
  llvm::SmallVector<llvm::GlobalVariable *, 2> Tables; // that name them
  // Nobody but the function itself can have one: they are in its registers, its frame, and tables that nothing writes.
  bool Stay = true;
};

Labels labelsOf(llvm::Function &);

} // namespace steadfast

#endif
