# Instructions of one call, on one thread with AVX2, that the test `instructions` allows: row, budget. What is counted does not
# depend on the machine's load, only on code and compiler; budgets leave a tenth for other compilers. Lower them when the code
# gets better; raise one only with the reason in the commit.
set(REEL_INSTRUCTION_BUDGETS
  add_1 410
  add_chain_100 138000
  mlp_64_64_10_sgd 164000
)
