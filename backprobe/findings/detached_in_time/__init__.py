"""The rule for hidden states of recurrent modules that are detached at every step of a sequence."""
