; A function whose only use is in a structure that other modules see is reached from there. One that the loader alone calls is not.
; CHECK: define internal i32 @query.sf(i32 %n)
; CHECK: define internal i32 @listed.sf(i32 %n)
; NEVER: @construct.sf
%type = type { ptr, i32 }
@service = constant %type { ptr @query, i32 1 }
@services = constant [1 x %type] [%type { ptr @listed, i32 2 }]
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @construct, ptr null }]
define internal i32 @query(i32 %n) {
  %r = mul i32 %n, 3
  ret i32 %r
}
define internal i32 @listed(i32 %n) {
  %r = mul i32 %n, 5
  ret i32 %r
}
define internal void @construct() {
  ret void
}
