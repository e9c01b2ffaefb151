; A vector of which a mask says which elements are stored: a store for each, logged like any other.
; CHECK: define hidden void @some.sf(
; CHECK: extractelement <2 x i1> %m, i64 0
; CHECK: br i1
; CHECK: call void asm sideeffect "call __sf_slow8"
; CHECK: store i64
; CHECK: extractelement <2 x i1> %m, i64 1
; CHECK: define hidden void @spread.sf(
; CHECK: extractelement <2 x ptr> %p, i64 0
; CHECK: store i32
; NEVER: call void @__sf_refuse
declare void @llvm.masked.store.v2i64.p0(<2 x i64>, ptr, i32, <2 x i1>)
declare void @llvm.masked.scatter.v2i32.v2p0(<2 x i32>, <2 x ptr>, i32, <2 x i1>)
define void @some(ptr %p, <2 x i64> %v, <2 x i1> %m) {
  call void @llvm.masked.store.v2i64.p0(<2 x i64> %v, ptr %p, i32 8, <2 x i1> %m)
  ret void
}
define void @spread(<2 x ptr> %p, <2 x i32> %v, <2 x i1> %m) {
  call void @llvm.masked.scatter.v2i32.v2p0(<2 x i32> %v, <2 x ptr> %p, i32 4, <2 x i1> %m)
  ret void
}
