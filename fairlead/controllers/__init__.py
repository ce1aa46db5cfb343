"""The feedback path: controllers that bring what is to what is wanted. One file each, around pure functions of fairlead/decide;
runtime.py gives all of them lease, cache, work queue and meters. fairlead/model/controllers.py declares what each may do."""
