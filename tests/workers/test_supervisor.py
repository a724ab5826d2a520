"""What the supervisor says when it cannot go on."""

from pathlib import Path

import pytest

from speechmill.configs.settings import load
from speechmill.workers.supervisor import Child, ChildFailed, Supervisor


def test_a_data_folder_that_vanished_is_one_clear_line(tmp_path: Path) -> None:
    log = tmp_path / "gone" / "worker.log"
    supervisor = Supervisor(load(), lambda line: None, [Child("worker", ("worker",), log)])
    with pytest.raises(ChildFailed, match=f"^{log}: No such file or directory$"):
        supervisor.run(lambda: True)
