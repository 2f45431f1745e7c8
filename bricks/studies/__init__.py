"""Questions about models: each study says what it needs measured, predicts, and checks itself."""
