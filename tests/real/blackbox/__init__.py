"""The cluster autoscaler from outside: processes among real servers, judged by what becomes of the world."""
