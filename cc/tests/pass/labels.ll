; A clone jumps to labels of its own: a table that names them is its own as well. Labels that may be another's are refused.
; CHECK: @table = internal constant [2 x ptr] [ptr blockaddress(@jumps, %one), ptr blockaddress(@jumps, %two)]
; CHECK: @table.sf = internal constant [2 x ptr] [ptr blockaddress(@jumps.sf, %one), ptr blockaddress(@jumps.sf, %two)]
; CHECK: define hidden i32 @jumps.sf(i64 %k)
; CHECK: getelementptr ptr, ptr @table.sf, i64 %k
; CHECK: indirectbr ptr
; CHECK: define hidden i32 @keeps.sf(ptr %p)
; CHECK: call void @__sf_refuse(
; CHECK: indirectbr ptr
@table = internal constant [2 x ptr] [ptr blockaddress(@jumps, %one), ptr blockaddress(@jumps, %two)]
define i32 @jumps(i64 %k) {
  %at = getelementptr ptr, ptr @table, i64 %k
  %to = load ptr, ptr %at
  indirectbr ptr %to, [label %one, label %two]
one:
  ret i32 1
two:
  ret i32 2
}
define i32 @keeps(ptr %p) {
  %to = load ptr, ptr %p
  store ptr blockaddress(@keeps, %two), ptr %p
  indirectbr ptr %to, [label %one, label %two]
one:
  ret i32 1
two:
  ret i32 2
}
