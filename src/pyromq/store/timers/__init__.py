"""Messages that wait for their time: the files of Apache's timer wheel."""
