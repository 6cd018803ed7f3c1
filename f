/tmp/pytest-of-root/pytest-635/test_a_session_left_among_temp1/work
