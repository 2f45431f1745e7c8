"""Where models come from: files, the zoo, suites, functions of programs, recordings, and memory.

Here because a word on a command line, an argument of the library and an address of the server name
models the same way. Must not know what is done with a model.
"""
