; With --validate=async a load is entered before it happens, once where an earlier access always comes first; so is what a
; copy or a library function reads. Constants and the own frame are not. The driver has no second run then.
; POLICY: async x
; POLICY: local-handler handle
; POLICY: pure strlen
; CHECK: define i32 @handle(ptr %p)
; CHECK: call i32 @__sf_mid(
; CHECK: label %later, label %second
; CHECK: define hidden i32 @handle.sf(ptr %p)
; CHECK: load volatile i64
; CHECK: !steadfast.looked
; CHECK: , 511
; CHECK: call __sf_load
; CHECK: %a = load i32, ptr %p
; CHECK: %b = load i32, ptr %p
; CHECK: call void @__sf_reads(ptr %p, i64 24)
; CHECK: call void @__sf_reads_string(ptr %p, i64 -1)
; CHECK: call i64 @strlen(ptr %p)
; CHECK: load i32, ptr @constant
; NEVER: i64 ptrtoint (ptr @constant
; NEVER: ptrtoint ptr %own

@constant = constant i32 7
@to = global [24 x i8] zeroinitializer

declare i64 @strlen(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i32 @handle(ptr %p) {
  %own = alloca [24 x i8]
  %a = load i32, ptr %p
  %b = load i32, ptr %p
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %p, i64 24, i1 false)
  %n = call i64 @strlen(ptr %p)
  %c = load i32, ptr @constant
  %d = load i32, ptr %own
  %m = trunc i64 %n to i32
  %s = add i32 %a, %b
  %t = add i32 %c, %d
  %u = add i32 %s, %t
  %v = add i32 %u, %m
  ret i32 %v
}
