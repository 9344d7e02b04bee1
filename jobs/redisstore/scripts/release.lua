-- Holder. Answers wakes, its own first.
local bad = guard()
if bad then return bad end
requeue(A.run)
return ok(wake_list())
